# The CUDA backend is built where nvcc is: no driver and no GPU are needed for that, nor to start the
# binary, which links cudart statically and opens everything else at run time.
set(TANDEM_CUDA AUTO CACHE STRING "Build the CUDA backend: ON, OFF, or AUTO (where nvcc is found)")
set(TANDEM_CUDA_ARCHITECTURES 90a CACHE STRING
    "Architectures to compile for, as CMAKE_CUDA_ARCHITECTURES; 80, 89, 90a and 120 work")
set(TANDEM_HAS_CUDA OFF)
if(TANDEM_CUDA)
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(ENV{CUDACXX} /usr/local/cuda/bin/nvcc)
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES ${TANDEM_CUDA_ARCHITECTURES})
    # std::bit_cast and the like are constexpr functions of the host's library.
    set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} --expt-relaxed-constexpr")
    enable_language(CUDA)
    # CMake 3.25 does not know that nvcc 13 has C++20.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA_STANDARD 20)
    find_package(CUDAToolkit REQUIRED)
    set(TANDEM_HAS_CUDA ON)
  elseif(NOT TANDEM_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "TANDEM_CUDA is ${TANDEM_CUDA}, but there is no CUDA compiler (nvcc)")
  endif()
endif()
message(STATUS "CUDA backend: ${TANDEM_HAS_CUDA}")
