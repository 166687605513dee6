"""An own small CloudFormation: templates, change sets, stacks, custom resources."""
