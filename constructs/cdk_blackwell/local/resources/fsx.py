"""FSx resource types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cdk_blackwell.local.resources.resource_type import ApiType, ResourceType

TYPES: Final[Mapping[str, ResourceType]] = {
    "AWS::FSx::FileSystem": ApiType(
        service="fsx",
        create_call="create_file_system",
        physical_id="output.FileSystem.FileSystemId",
        attributes={
            "DNSName": "output.FileSystem.DNSName",
            "LustreMountName": "output.FileSystem.LustreConfiguration.MountName",
            "ResourceARN": "output.FileSystem.ResourceARN",
        },
        delete_call="delete_file_system",
        delete_input={"FileSystemId": "{id}"},
    ),
    "AWS::FSx::DataRepositoryAssociation": ApiType(
        service="fsx",
        create_call="create_data_repository_association",
        physical_id="output.Association.AssociationId",
        attributes={
            "AssociationId": "output.Association.AssociationId",
            "ResourceARN": "output.Association.ResourceARN",
        },
        delete_call="delete_data_repository_association",
        delete_input={"AssociationId": "{id}"},
    ),
}
