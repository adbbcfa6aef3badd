# FlashInfer's attention kernels are headers, which its wheel on PyPI carries. Some of them are
# unpacked from the pinned wheel into the build folder when the CUDA backend is built; the project's
# own kernels do without, so a build that cannot have them goes on (AUTO).
set(TANDEM_FLASHINFER AUTO CACHE STRING
    "Build FlashInfer's attention kernels into the CUDA backend: ON, OFF, or AUTO (where its wheel can be had)")
set(TANDEM_FLASHINFER_WHEEL "" CACHE FILEPATH "The wheel, where it is already there; empty: fetch it with pip")

# Sets `problem` in the caller, empty when the headers are in `dir`.
function(tandem_unpack_flashinfer dir)
  set(version 0.7.2.post1)
  set(sha256 bfdc18b9e1e4d8d0730fe4343dc0e284cd0c160086de80f99888bc4867922d49)
  set(wheel ${TANDEM_FLASHINFER_WHEEL})
  if(NOT wheel)
    find_package(Python3 QUIET COMPONENTS Interpreter)
    if(NOT Python3_Interpreter_FOUND)
      set(problem "there is no python3 to fetch it with" PARENT_SCOPE)
      return()
    endif()
    set(wheel ${dir}.download/flashinfer_python-${version}-py3-none-any.whl)
    file(WRITE ${dir}.download/requirements.txt "flashinfer-python==${version} --hash=sha256:${sha256}\n")
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -m pip download -q --disable-pip-version-check --no-input --no-deps
              --only-binary :all: --retries 1 --timeout 15 --require-hashes
              -r ${dir}.download/requirements.txt -d ${dir}.download
      TIMEOUT 180 RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE error)
    if(NOT result EQUAL 0)
      string(STRIP "${error}" error)
      string(REGEX REPLACE ".*\n" "" error "${error}")
      set(problem "pip download: ${error} (${result})" PARENT_SCOPE)
      return()
    endif()
  endif()
  if(NOT EXISTS ${wheel})
    set(problem "${wheel} is not there" PARENT_SCOPE)
    return()
  endif()
  file(SHA256 ${wheel} actual)
  if(NOT actual STREQUAL sha256)
    set(problem "${wheel}: unexpected sha256 ${actual}" PARENT_SCOPE)
    return()
  endif()
  file(REMOVE_RECURSE ${dir})
  # Parts of CUDA's own headers (libcudacxx) come along, as FlashInfer needs newer ones than CUDA 13.0 has.
  file(ARCHIVE_EXTRACT INPUT ${wheel} DESTINATION ${dir} PATTERNS
    "flashinfer/data/include/flashinfer/*" "flashinfer/data/cccl/libcudacxx/include/*" "*/licenses/LICENSE")
  file(REMOVE_RECURSE ${dir}.download)
  file(WRITE ${dir}/unpacked ${sha256})
  set(problem "" PARENT_SCOPE)
endfunction()

set(TANDEM_HAS_FLASHINFER OFF)
if(TANDEM_FLASHINFER AND TANDEM_HAS_CUDA)
  set(dir ${CMAKE_BINARY_DIR}/_deps/flashinfer-0.7.2.post1)
  set(problem "")
  if(NOT EXISTS ${dir}/unpacked)
    tandem_unpack_flashinfer(${dir})
  endif()
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
