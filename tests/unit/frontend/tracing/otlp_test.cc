#include "frontend/tracing/otlp.h"

#include <cstdio>
#include <string>

#include "common/random.h"
#include "common/strings.h"
#include "tests/support/dice.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

Span ExampleSpan() {
  Span span;
  span.trace_id = {0x0102030405060708, 0x090a0b0c0d0e0f10};
  span.id = 0x1112131415161718;
  span.parent_id = 0x2122232425262728;
  span.state = "a=b";
  span.name = "llm_request";
  span.is_server = true;
  span.has_remote_parent = true;
  span.begin = 1.5;
  span.end = 2.5;
  span.attributes = {{"t", std::string("x\xFF")},
                     {"e", std::string()},
                     {"i", int64_t{-1}},
                     {"z", int64_t{0}},
                     {"d", 0.5}};
  span.error = "no";
  return span;
}

// The expected bytes are those of Python's protobuf for the same message.
TEST_CASE("OTLP: bytes are protobuf's") {
  const TraceResource resource = {{{"service.name", std::string("s")}}, "scope", "1"};
  const Span span = ExampleSpan();
  CHECK(HexEncode(EncodeTraces(resource, {&span, 1})) ==
        "0ac4010a150a130a0c736572766963652e6e616d6512030a017312aa010a0a0a0573636f7065120131129b010a"
        "100102030405060708090a0b0c0d0e0f10120811121314151617181a03613d62220821222324252627282a0b6c"
        "6c6d5f72657175657374300239002f6859000000004100f90295000000004a0b0a017412060a0478efbfbd4a07"
        "0a016512020a004a100a0169120b18ffffffffffffffffff014a070a017a120218004a0e0a0164120921000000"
        "000000e03f7a0612026e6f1802850101030000");
  CHECK(EncodeTraces(resource, {}).empty());
}

TEST_CASE("OTLP: a span never ends before it begins") {
  Span span = ExampleSpan();
  span.end = 1;
  Span same = ExampleSpan();
  same.end = same.begin;
  CHECK(EncodeTraces({}, {&span, 1}) == EncodeTraces({}, {&same, 1}));
}

TEST_CASE("OTLP: what a collector refused is read from its reply") {
  const TracesRefused refused = DecodeTracesReply(*HexDecode("0a0708031203626164"));
  CHECK(refused.num_spans == 3);
  CHECK(refused.message == "bad");
  CHECK(DecodeTracesReply("").num_spans == 0);
  CHECK(DecodeTracesReply("<html>not found</html>").num_spans == 0);
  // A count below zero is none.
  CHECK(DecodeTracesReply(*HexDecode("0a0b08ffffffffffffffffff01")).num_spans == 0);
}

TEST_CASE("OTLP: any bytes are a reply or none") {
  constexpr uint64_t kSeed = 19;
  INFO("seed " << kSeed);
  Dice dice(kSeed);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes;
    const int size = dice.Roll(0, 24);
    for (int b = 0; b < size; ++b) {
      constexpr unsigned char kTelling[] = {0x0a, 0x08, 0x12, 0x80, 0xff, 0x09, 0x0d, 0x00, 0x01};
      bytes += static_cast<char>(dice.Chance(2) ? kTelling[dice.Roll(0, 8)] : dice.Roll(0, 255));
    }
    const TracesRefused refused = DecodeTracesReply(bytes);
    CHECK(refused.num_spans >= 0);
    CHECK(refused.message.size() <= bytes.size());
  }
}

}  // namespace
}  // namespace tandem
