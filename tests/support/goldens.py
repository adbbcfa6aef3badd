"""What other programs computed: packed by gzip in the tree, plain in the set that TANDEM_GOLDENS names."""
import gzip
import json


def read_goldens(folder):
    """goldens.json of a folder, a pathlib.Path."""
    path = folder / "goldens.json"
    return json.loads(path.read_text() if path.exists() else gzip.decompress(path.with_suffix(".json.gz").read_bytes()))
