"""FSx for Lustre as moto lacks it: a life cycle, a mount name, data repository associations."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any, Final

_associations: Final[dict[tuple[str, str], dict[str, dict[str, Any]]]] = {}
"""(account, region) -> association id -> description."""


def install() -> None:
    """Add to moto's FSx; after ``check_moto``."""
    from moto.fsx.models import FileSystem
    from moto.fsx.responses import FSxResponse

    stock_to_dict = FileSystem.to_dict
    stock_create = FSxResponse.create_file_system
    stock_delete = FSxResponse.delete_file_system

    def to_dict(system: Any) -> dict[str, Any]:
        return _describe(system, stock_to_dict(system))

    def create_file_system(response: Any) -> Any:
        problem = _check_file_system(response, json.loads(response.body))
        return problem or stock_create(response)

    def delete_file_system(response: Any) -> Any:
        system = json.loads(response.body).get("FileSystemId")
        for key, association in list(_of(response).items()):
            if association["FileSystemId"] == system:
                del _of(response)[key]
        return stock_delete(response)

    FileSystem.to_dict = to_dict
    FSxResponse.create_file_system = create_file_system
    FSxResponse.delete_file_system = delete_file_system
    FSxResponse.create_data_repository_association = _create_association
    FSxResponse.describe_data_repository_associations = _describe_associations
    FSxResponse.delete_data_repository_association = _delete_association


def _error(code: str, message: str) -> tuple[int, dict[str, Any], str]:
    return 400, {"status": 400}, json.dumps({"__type": code, "message": message})


def _check_file_system(response: Any, request: dict[str, Any]) -> Any:
    from moto.ec2.models import ec2_backends

    subnets = ec2_backends[response.current_account][response.region].subnets
    known = {name for zone in subnets.values() for name in zone}
    for subnet in request["SubnetIds"]:
        if subnet not in known:
            return _error("InvalidNetworkSettings", f"The subnet ID '{subnet}' does not exist")
    capacity = int(request.get("StorageCapacity") or 0)
    lustre = request.get("LustreConfiguration") or {}
    if lustre.get("DeploymentType") == "PERSISTENT_2" and capacity != 1200 and capacity % 2400:
        return _error(
            "BadRequest",
            f"StorageCapacity {capacity} is not valid for PERSISTENT_2: 1200 or a multiple of 2400",
        )
    return None


def _describe(system: Any, stock: dict[str, Any]) -> dict[str, Any]:
    from moto.ec2.models import ec2_backends

    result = {**stock, "Lifecycle": "AVAILABLE", "OwnerId": system.backend.account_id}
    if not hasattr(system, "cdkb_creation_time"):
        system.cdkb_creation_time = time.time()
    result["CreationTime"] = system.cdkb_creation_time
    ec2 = ec2_backends[system.backend.account_id][system.backend.region_name]
    for subnets in ec2.subnets.values():
        if system.subnet_ids[0] in subnets:
            result["VpcId"] = subnets[system.subnet_ids[0]].vpc_id
    if system.file_system_type == "LUSTRE":
        # Real mount names are eight random letters, the same for the system's whole life.
        name = "".join(chr(ord("a") + int(digit, 16)) for digit in system.file_system_id[3:11])
        result["LustreConfiguration"] = {**(system.lustre_configuration or {}), "MountName": name}
        result["FileSystemTypeVersion"] = "2.15"
    return result


# --- Data repository associations, as methods of moto's FSxResponse -------------------------------


def _of(response: Any) -> dict[str, dict[str, Any]]:
    return _associations.setdefault((response.current_account, response.region), {})


def _create_association(response: Any) -> Any:
    request = json.loads(response.body)
    if request["FileSystemId"] not in response.fsx_backend.file_systems:
        return _error(
            "FileSystemNotFound", f"File system '{request['FileSystemId']}' does not exist."
        )
    path = request.get("FileSystemPath")
    for other in _of(response).values():
        if other["FileSystemId"] == request["FileSystemId"] and other["FileSystemPath"] == path:
            return _error("BadRequest", f"FileSystemPath {path} is already associated")
    name = f"dra-{uuid.uuid4().hex[:17]}"
    arn = f"arn:aws:fsx:{response.region}:{response.current_account}:association/"
    association = {key: value for key, value in request.items() if key != "ClientRequestToken"} | {
        "AssociationId": name,
        "ResourceARN": f"{arn}{request['FileSystemId']}/{name}",
        "Lifecycle": "AVAILABLE",
        "CreationTime": time.time(),
    }
    _of(response)[name] = association
    return json.dumps({"Association": association})


def _describe_associations(response: Any) -> Any:
    request = json.loads(response.body)
    wanted = request.get("AssociationIds")
    found = [one for key, one in _of(response).items() if not wanted or key in wanted]
    for condition in request.get("Filters") or []:
        if condition["Name"] == "file-system-id":
            found = [one for one in found if one["FileSystemId"] in condition["Values"]]
    return json.dumps({"Associations": found})


def _delete_association(response: Any) -> Any:
    request = json.loads(response.body)
    if request["AssociationId"] not in _of(response):
        return _error(
            "DataRepositoryAssociationNotFound",
            f"Association '{request['AssociationId']}' does not exist",
        )
    del _of(response)[request["AssociationId"]]
    return json.dumps(
        {
            "AssociationId": request["AssociationId"],
            "Lifecycle": "DELETING",
            "DeleteDataInFileSystem": bool(request.get("DeleteDataInFileSystem")),
        }
    )
