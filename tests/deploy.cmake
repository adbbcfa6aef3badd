# tandem_test() lines of tests over deploy.
tandem_test(unit_deploy LABEL unit
  SRCS unit/deploy/cli/command_line_test.cc unit/deploy/cli/sse_parser_test.cc
  DEPS deploy/cli)
