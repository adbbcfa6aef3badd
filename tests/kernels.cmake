# tandem_test() lines of tests over kernels.
module(tests/support/kernels DEPS kernels)
tandem_test(unit_kernels LABEL unit
  SRCS unit/kernels/tensor_test.cc unit/kernels/quantization_test.cc unit/kernels/reference_test.cc
  DEPS kernels)
tandem_test(property_kernels LABEL property
  SRCS property/kernels_test.cc property/kernels_invariance_test.cc property/kernels_quantized_test.cc property/compute_pool_test.cc
  DEPS kernels tests/support/kernels)

# The object is the same in dev and release; sanitizers put their own bookkeeping on the stack.
if(CMAKE_OBJDUMP AND NOT CMAKE_CXX_FLAGS MATCHES "fsanitize")
  set(objects $<TARGET_OBJECTS:tandem_kernels>)
  add_test(NAME "tidy: hot kernels keep their accumulators in registers"
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/tidy/spills.py ${CMAKE_OBJDUMP}
      $<FILTER:${objects},INCLUDE,isa_avx512_bf16> COMMAND_EXPAND_LISTS)
  set_tests_properties("tidy: hot kernels keep their accumulators in registers" PROPERTIES LABELS unit)
endif()
