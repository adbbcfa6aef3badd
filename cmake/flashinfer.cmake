# FlashInfer's attention kernels are headers, which its wheel on PyPI carries. Some of them are
# unpacked from the pinned wheel into the build folder when the CUDA backend is built; the project's
# own kernels do without, so a build that cannot have them goes on (AUTO).
set(TANDEM_FLASHINFER AUTO CACHE STRING
    "Build FlashInfer's attention kernels into the CUDA backend: ON, OFF, or AUTO (where its wheel can be had)")
set(TANDEM_FLASHINFER_WHEEL "" CACHE FILEPATH "The wheel, where it is already there; empty: fetch it with pip")

set(TANDEM_HAS_FLASHINFER OFF)
if(TANDEM_FLASHINFER AND TANDEM_HAS_CUDA)
  set(dir ${CMAKE_BINARY_DIR}/_deps/flashinfer-0.7.2.post1)
  # Parts of CUDA's own headers (libcudacxx) come along, as FlashInfer needs newer ones than CUDA 13.0 has.
  tandem_unpack_pypi(problem ${dir} PACKAGE flashinfer-python VERSION 0.7.2.post1
    FILE flashinfer_python-0.7.2.post1-py3-none-any.whl
    SHA256 bfdc18b9e1e4d8d0730fe4343dc0e284cd0c160086de80f99888bc4867922d49
    ARCHIVE ${TANDEM_FLASHINFER_WHEEL} PIP --only-binary :all:
    PATTERNS "flashinfer/data/include/flashinfer/*" "flashinfer/data/cccl/libcudacxx/include/*" "*/licenses/LICENSE")
  if(NOT problem)
    set(TANDEM_HAS_FLASHINFER ON)
    # Not as system headers: those come after the toolkit's own, which some of these must replace.
    set(TANDEM_FLASHINFER_INCLUDE ${dir}/flashinfer/data/include ${dir}/flashinfer/data/cccl/libcudacxx/include)
  elseif(TANDEM_FLASHINFER STREQUAL "AUTO")
    message(STATUS "FlashInfer is left out, attention is computed by the project's own kernels: ${problem}")
  else()
    message(FATAL_ERROR "TANDEM_FLASHINFER is ${TANDEM_FLASHINFER}, but FlashInfer could not be had: ${problem}")
  endif()
elseif(TANDEM_FLASHINFER AND NOT TANDEM_FLASHINFER STREQUAL "AUTO")
  message(FATAL_ERROR "TANDEM_FLASHINFER is ${TANDEM_FLASHINFER}, but the CUDA backend is not built")
endif()
message(STATUS "FlashInfer: ${TANDEM_HAS_FLASHINFER}")
