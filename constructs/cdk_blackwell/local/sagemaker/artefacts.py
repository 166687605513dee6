"""What a job leaves in S3 at its end: the model and the output data."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

from cdk_blackwell.local.sagemaker.layout import ContainerRoot
from cdk_blackwell.local.sagemaker.record import JobRecord
from cdk_blackwell.local.sagemaker.s3 import S3Uri, files_below, upload


def upload_artefacts(s3: Any, record: JobRecord, root: ContainerRoot, *, with_model: bool) -> None:
    """Upload ``model`` and ``output/data`` below ``<S3OutputPath>/<job>/output/``.

    Uncompressed they keep their files under ``model/`` and ``data/``; compressed they become
    ``model.tar.gz`` and ``output.tar.gz``. A failed job has no model. Empty folders leave nothing.
    """
    target = S3Uri.parse(record.output_uri)
    key = record.request["OutputDataConfig"].get("KmsKeyId") or None
    folders = [(root.output_data, "data", "output.tar.gz")]
    if with_model:
        folders.insert(0, (root.model, "model", "model.tar.gz"))
    for folder, name, archive_name in folders:
        files = list(files_below(folder))
        if not files:
            continue
        if record.is_compressed:
            archive = _pack(folder, root.path / archive_name)
            upload(s3, archive, target / archive_name, kms_key_id=key)
            archive.unlink()
        else:
            for file in files:
                relative = file.relative_to(folder).as_posix()
                upload(s3, file, target / f"{name}/{relative}", kms_key_id=key)


def _pack(folder: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as tar:
        for file in files_below(folder):
            tar.add(file, arcname=file.relative_to(folder).as_posix())
    return archive
