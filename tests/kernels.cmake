# tandem_test() lines of tests over kernels.
module(tests/support/kernels DEPS kernels)
tandem_test(unit_kernels LABEL unit
  SRCS unit/kernels/shared_communicator_test.cc unit/kernels/ops_test.cc unit/kernels/recurrence_test.cc unit/kernels/selected_keys_test.cc unit/kernels/host_memory_test.cc unit/kernels/tensor_test.cc unit/kernels/matrix_source_test.cc
       unit/kernels/quantization_test.cc unit/kernels/reference_test.cc unit/kernels/elementary_functions_test.cc support/kernels/cpu_cases.cc
  DEPS kernels tests/support/kernels)
tandem_test(property_kernels LABEL property
  SRCS support/kernels/cpu_cases.cc property/kernels_test.cc property/kernels_invariance_test.cc property/kernels_rows_test.cc property/kernels_quantized_test.cc property/kernels_blocks_test.cc property/kernels_adapters_test.cc property/kernels_recurrence_test.cc property/kernels_isa_test.cc property/compute_pool_test.cc
  DEPS kernels tests/support/files tests/support/kernels)
target_include_directories(property_kernels PRIVATE ${CMAKE_SOURCE_DIR})  # tests/support/environment.h alone
tandem_test(property_coded LABEL property
  SRCS support/kernels/cpu_cases.cc property/kernels_coded_test.cc unit/kernels/float8_test.cc
  DEPS kernels tests/support/files tests/support/kernels)

# The sources of kernels/cuda as C++ for the host, over support/cuda_emulation in place of CUDA's own
# headers, and under other names than the real backend, which a build with CUDA has as well.
set(dir ${CMAKE_SOURCE_DIR}/kernels/cuda)
file(GLOB emulated_kernels CONFIGURE_DEPENDS ${dir}/*.cu ${dir}/sampling/*.cu)
set_source_files_properties(${emulated_kernels} PROPERTIES LANGUAGE CXX)
add_library(tandem_emulated_cuda STATIC ${emulated_kernels} ${dir}/cuda_backend.cc
  ${dir}/cuda_device.cc ${dir}/cuda_ops.cc ${dir}/cuda_pair.cc ${dir}/pack_coded.cc ${dir}/device_memory.cc ${dir}/sampling/sampler.cc support/cuda_emulation/cuda_emulation.cc
  ${dir}/flashinfer/attention.cc support/cuda_emulation/flashinfer_emulation.cc
  support/cuda_emulation/emulated_cublaslt.cc)
target_include_directories(tandem_emulated_cuda BEFORE PRIVATE ${CMAKE_CURRENT_LIST_DIR}/support/cuda_emulation)
target_include_directories(tandem_emulated_cuda PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(tandem_emulated_cuda PRIVATE CudaBackend=EmulatedCudaBackend
  CudaDevice=EmulatedCudaDevice CudaOps=EmulatedCudaOps
  MakeCudaBackend=MakeEmulatedCudaBackend HasCudaDevice=HasEmulatedCudaDevice
  NumCudaDevices=NumEmulatedCudaDevices CudaExchange=EmulatedCudaExchange CudaPeers=EmulatedCudaPeers PeerAddress=EmulatedPeerAddress
  ReadCudaFacts=ReadEmulatedCudaFacts
  HasFlashInfer=HasEmulatedFlashInfer FlashInferDecodeBlocks=EmulatedFlashInferDecodeBlocks
  LaunchFlashInfer=EmulatedLaunchFlashInfer CudaMatrix=EmulatedCudaMatrix
  CudaAttentionPlan=EmulatedCudaAttentionPlan CudaCapturedOps=EmulatedCudaCapturedOps
  CudaSampler=EmulatedCudaSampler CudaSlotParams=EmulatedCudaSlotParams CublasLt=EmulatedCublasLt
  LaunchTensorCores=EmulatedLaunchTensorCores LaunchDecodeAttention=EmulatedLaunchDecodeAttention
  LaunchTensorCoreDecode=EmulatedLaunchTensorCoreDecode LaunchTensorCoreAttention=EmulatedLaunchTensorCoreAttention
  DecodesOnTensorCores=EmulatedDecodesOnTensorCores
  AllocatePinned=EmulatedAllocatePinned CudaPair=EmulatedCudaPair CudaPairLayout=EmulatedCudaPairLayout
  CudaPairEntry=EmulatedCudaPairEntry CudaPairTable=EmulatedCudaPairTable)
# Unknown pragmas are nvcc's; fibers are too slow in a debug build.
target_compile_options(tandem_emulated_cuda PRIVATE -Wno-unknown-pragmas -O2)
target_link_libraries(tandem_emulated_cuda PUBLIC tandem_kernels)
module(tests/support/cuda_emulation DEPS kernels)
tandem_test(unit_cuda_plan LABEL unit SRCS unit/kernels/cuda/flashinfer/plan_test.cc unit/kernels/cuda/libraries/gemm_choice_test.cc DEPS kernels)
target_include_directories(unit_cuda_plan PRIVATE ${CMAKE_SOURCE_DIR})

# The library in NCCL's place in tests, the same as before NCCL 2.13, and one whose ranks are processes.
add_library(fake_nccl MODULE support/fake_nccl.cc)
add_library(old_fake_nccl MODULE support/fake_nccl.cc)
add_library(process_nccl MODULE support/process_nccl.cc)
foreach(library fake_nccl old_fake_nccl process_nccl)
  target_include_directories(${library} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${library} PRIVATE tandem_kernels)
endforeach()
target_compile_definitions(old_fake_nccl PRIVATE FAKE_NCCL_IS_OLD)
tandem_test(unit_nccl LABEL unit SRCS unit/kernels/cuda/libraries/nccl_test.cc DEPS kernels tests/support/files)
target_include_directories(unit_nccl PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(unit_nccl PRIVATE TANDEM_FAKE_NCCL="$<TARGET_FILE:fake_nccl>"
  TANDEM_OLD_FAKE_NCCL="$<TARGET_FILE:old_fake_nccl>")
add_dependencies(unit_nccl fake_nccl old_fake_nccl)
find_path(TANDEM_NCCL_HEADER nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(TANDEM_HAS_CUDA AND TANDEM_NCCL_HEADER)
  target_sources(unit_nccl PRIVATE unit/kernels/cuda/libraries/nccl_header_test.cc)
  target_include_directories(unit_nccl SYSTEM PRIVATE ${TANDEM_NCCL_HEADER} ${CUDAToolkit_INCLUDE_DIRS})
endif()
tandem_test(property_emulated_cuda LABEL property
  SRCS support/kernels/emulated_cuda_cases.cc property/kernels_test.cc property/kernels_adapters_test.cc property/kernels_recurrence_test.cc
       property/flashinfer_test.cc property/random_matrices_test.cc property/cuda_coded_test.cc property/cublaslt_test.cc
  DEPS tandem_emulated_cuda tests/support/kernels tests/support/cuda_emulation)

if(TANDEM_HAS_CUDA)
  add_test(NAME "tidy: the emulated CUDA backend and the real one share no names"
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/tidy/shared_names.py ${CMAKE_NM}
      $<TARGET_FILE:tandem_emulated_cuda> $<TARGET_FILE:tandem_kernels>)
  set_tests_properties("tidy: the emulated CUDA backend and the real one share no names" PROPERTIES LABELS unit)
  # The building machine may have libraries that hosts without a GPU lack.
  add_test(NAME "tidy: the engine core starts without CUDA's libraries"
    COMMAND ${CMAKE_READELF} --dynamic --wide $<TARGET_FILE:tandem-engine-core>)
  set_tests_properties("tidy: the engine core starts without CUDA's libraries" PROPERTIES LABELS unit
    FAIL_REGULAR_EXPRESSION "NEEDED[^\n]*(cuda|cublas|nccl|nvidia|nvrtc)")
endif()

# The object is the same in dev and release; sanitizers keep data of their own on the stack.
if(CMAKE_OBJDUMP AND NOT TANDEM_SANITIZER)
  set(objects $<TARGET_OBJECTS:tandem_kernels>)
  add_test(NAME "tidy: hot kernels keep their accumulators in registers"
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/tidy/spills.py ${CMAKE_OBJDUMP}
      $<FILTER:${objects},INCLUDE,isa_avx512_bf16> COMMAND_EXPAND_LISTS)
  set_tests_properties("tidy: hot kernels keep their accumulators in registers" PROPERTIES LABELS unit)
endif()
