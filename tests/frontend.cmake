# tandem_test() lines of tests over frontend.
tandem_test(golden_tokenizers LABEL golden SRCS golden/tokenizers_test.cc DEPS frontend/text)
tandem_test(unit_text LABEL unit SRCS
  unit/common/utf8_test.cc unit/frontend/text/stop_strings_test.cc
  unit/frontend/text/tokenizer_test.cc unit/frontend/text/detokenizer_test.cc
  DEPS frontend/text)
tandem_test(property_text LABEL property SRCS
  property/stop_strings_test.cc property/bpe_test.cc property/detokenizer_test.cc
  property/tokenizer_file_test.cc
  DEPS frontend/text)
tandem_test(unit_net LABEL unit SRCS unit/frontend/net/net_test.cc DEPS frontend/net)
tandem_test(unit_http LABEL unit SRCS unit/frontend/http/server_test.cc DEPS frontend/http)
target_include_directories(unit_http PRIVATE unit/frontend/http)
tandem_test(unit_engine_client LABEL unit SRCS unit/frontend/engine_client/engine_client_test.cc
  DEPS frontend/engine_client tests/support)
tandem_test(unit_metrics LABEL unit SRCS unit/frontend/metrics/metrics_test.cc DEPS frontend/metrics)
target_include_directories(unit_metrics PRIVATE unit/frontend/metrics)
