"""A matrix as torch.save writes it, without torch."""
import io
import struct
import zipfile


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value):
    return b"J" + struct.pack("<i", value)


def torch_file(data, shape, storage="FloatStorage", size=4):
    """data: the numbers' bytes, row-major; shape: (rows, columns); size: bytes of a number."""
    rows, columns = shape
    pickle = (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + b"ctorch\n" + storage.encode() + b"\n" +
              text("0") + text("cpu") + number(len(data) // size) + b"tQ" + number(0) + number(rows) + number(columns) +
              b"\x86" + number(columns) + number(1) + b"\x86\x89ccollections\nOrderedDict\n)RtR.")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", data)
        archive.writestr("archive/version", "3\n")
    return out.getvalue()
