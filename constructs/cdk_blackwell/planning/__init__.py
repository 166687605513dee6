"""Memory, speed, cost and recipes, known before anything starts.

Standard library only: the same code runs at synth, in the run controller's Lambda and in the
training container.
"""
