tandem_test(unit_common LABEL unit SRCS unit/common/status_test.cc DEPS common)
