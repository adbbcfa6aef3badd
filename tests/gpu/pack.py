#!/usr/bin/env python3
"""Makes build/gpu-pack/files.tar.xz: what tests/gpu/check.sh needs on the machine with the GPU, besides
the working tree, compilers, CMake and Python.

Runs where the project builds, on Debian, and needs no GPU. In the archive:

  usr/    headers, libraries and CMake files of the Debian packages that the build uses
  _deps/  what CMake fetches: headers of msgpack and FlashInfer
  bin/    the programs, for a machine where the build fails
  libc/   their C and C++ libraries, for a machine whose own are too old

With --programs, nothing for a build, but the named models of $TANDEM_GOLDENS/models2:

  goldens/  what check.sh names TANDEM_GOLDENS there
"""
import argparse
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/gpu-build"
FILES = ROOT / "build/gpu-files"
ARCHIVE = ROOT / "build/gpu-pack/files.tar.xz"
LIMIT_MIB = 64  # of the working tree with the archive
PROGRAMS = ["bin/tandem", "bin/tandem-frontend", "bin/tandem-media", "bin/tandem-engine-core", "bin/tandem-grammar", "bench/stream_load"] + [
    f"gpu/gpu_{name}_cuda" for name in ("kernels", "golden", "figures")]
INCLUDE = [pathlib.Path("/usr/include"), pathlib.Path("/usr/include/x86_64-linux-gnu")]
C_LIBRARY = re.compile(r"(lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+)\.so|ld-linux)")


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def build():
    log = BUILD.with_suffix(".log")
    with open(log, "w") as file:
        if subprocess.run([ROOT / "tests/gpu/build.sh", BUILD, "cuda"], stdout=file, stderr=file).returncode:
            sys.exit(f"the build failed, see {log}")


def copy(path):
    """Copies to the same place under usr; this architecture's headers go to usr/include."""
    target = FILES / "usr" / path.relative_to("/usr")
    if INCLUDE[1] in path.parents:
        target = FILES / "usr/include" / path.relative_to(INCLUDE[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() and path.resolve().parent == path.parent.resolve():
        target.unlink(missing_ok=True)
        target.symlink_to(path.resolve().name)
    elif path.exists():
        shutil.copy2(path, target)


def copy_headers(excluded):
    """Copies the headers that the compilers read, from ninja's records, with the other files of their
    folders: another compiler may take another branch."""
    lines = output("ninja", "-C", BUILD, "-t", "deps").splitlines()
    names = {line.strip() for line in lines if line.startswith("    ")}
    read = {pathlib.Path(os.path.normpath(BUILD / name)) for name in names}
    folders = set()
    for header in read:
        if header.parent in INCLUDE:
            if str(header) not in excluded:
                copy(header)
        elif INCLUDE[0] in header.parents and "c++" not in header.parts:
            folders.add(header.parent)
        elif re.match("cublas|nccl", header.name) and ROOT not in header.parents:
            # CUDA's libraries are opened at run time; a machine may have them without their headers.
            shutil.copy2(header, FILES / "usr/include")
    for path in (path for folder in folders for path in folder.iterdir()):
        if path.is_file() and str(path) not in excluded:
            copy(path)
    for name in "zlib.h", "zconf.h":  # CMake looks for them on behalf of a test
        copy(INCLUDE[0] / name)


def copy_library(path):
    """Copies a library with its links and their targets."""
    path = path.parent.resolve() / path.name
    for each in path.parent.glob(path.name.split(".so")[0] + ".so*") if ".so" in path.name else [path]:
        copy(each)


def copy_libraries(excluded):
    """Copies the libraries that CMake found, those that its package files check for, and their
    dependencies."""
    rules = (BUILD / "build.ninja").read_text()
    cmake_files = [pathlib.Path(name) for name in set(re.findall(r"/usr/[^ ]+/cmake/[^ \n]+", rules))]
    libraries = re.findall(r":FILEPATH=(/usr/lib/.*\.(?:so|a))$", (BUILD / "CMakeCache.txt").read_text(), re.M)
    for path in cmake_files:
        copy(path)
        libraries += ["/usr/" + name for name in re.findall(r'"\${_IMPORT_PREFIX}/(lib/[^"]+)"', path.read_text())]
    for name in set(libraries) - excluded:
        copy_library(pathlib.Path(name))
    needed = output("ldd", *(BUILD / program for program in PROGRAMS))
    for name in set(re.findall(r"(?:=> |^\t)(/\S+)", needed, re.M)):
        if C_LIBRARY.match(os.path.basename(name)):
            shutil.copy(name, FILES / "libc")
        else:
            copy_library(pathlib.Path(name))


def copy_goldens(models):
    """Of the models what the golden texts need, and those that take images."""
    source = pathlib.Path(os.environ["TANDEM_GOLDENS"])
    for model in models:
        shutil.copytree(source / "models2" / model, FILES / "goldens/models2" / model,
                        ignore=shutil.ignore_patterns("logits*", "tokenizer*"))
    shutil.copytree(source / "vision", FILES / "goldens/vision", ignore=shutil.ignore_patterns("images", "tokenizer*"))
    (FILES / "goldens/quantized").mkdir()  # read whole, if there


def pack():
    """Writes the archive. The programs have much in common: the dictionary is as large as all."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 128 << 20}]
    with lzma.open(ARCHIVE, "w", filters=filters) as file, tarfile.open(fileobj=file, mode="w|") as archive:
        for path in sorted(FILES.iterdir()):
            archive.add(path, path.name)


def tree_bytes():
    """Size of the files that are carried: those that git tracks or does not ignore."""
    names = output("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return sum((ROOT / name).lstat().st_size for name in names if name and (ROOT / name).exists())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="*", metavar="MODEL")
    models = parser.parse_args().programs
    build()
    shutil.rmtree(FILES, ignore_errors=True)
    for folder in "bin", "libc", "_deps/msgpack/usr", "usr/include":
        (FILES / folder).mkdir(parents=True)
    ARCHIVE.parent.mkdir(exist_ok=True)
    for program in PROGRAMS:
        subprocess.run(["strip", "-o", FILES / "bin" / os.path.basename(program), BUILD / program], check=True)
    # The C library's headers come with the compiler there.
    excluded = set(output("dpkg", "-L", "libc6-dev", "libcrypt-dev", "linux-libc-dev").split())
    copy_libraries(excluded)
    if models is None:
        copy_headers(excluded)
        shutil.copytree(BUILD / "_deps/msgpack/usr/include", FILES / "_deps/msgpack/usr/include")
        for folder in (BUILD / "_deps").glob("flashinfer-*"):
            shutil.copytree(folder, FILES / "_deps" / folder.name)
    elif models:
        copy_goldens(models)
    pack()
    shutil.rmtree(FILES)
    archive_mib, tree_mib = ARCHIVE.stat().st_size / 2**20, tree_bytes() / 2**20
    print(f"{ARCHIVE.relative_to(ROOT)}: {archive_mib:.1f} MiB, with the working tree {archive_mib + tree_mib:.1f} MiB")
    if archive_mib + tree_mib > LIMIT_MIB:
        sys.exit(f"the working tree with the archive is over {LIMIT_MIB} MiB: it must be smaller to be carried")


if __name__ == "__main__":
    main()
