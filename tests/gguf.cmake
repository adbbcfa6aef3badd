tandem_test(unit_gguf LABEL unit SRCS unit/gguf/gguf_file_test.cc
  DEPS gguf kernels tests/support/files)
