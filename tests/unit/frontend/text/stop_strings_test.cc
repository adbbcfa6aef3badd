#include "frontend/text/stop_strings.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("StopStrings holds back exactly what may still become a stop string") {
  StopStrings stop({"</end>", "\n\n"}, false);
  std::string released;
  CHECK_FALSE(stop.Append("Hi </e", true, &released));
  CHECK(released == "Hi ");
  CHECK_FALSE(stop.Append("x\n", true, &released));
  CHECK(released == "Hi </ex");
  CHECK(stop.held_bytes() == 1);
  CHECK_FALSE(stop.Append("more", true, &released));
  CHECK(released == "Hi </ex\nmore");
}

TEST_CASE("StopStrings cuts the output at the stop string's start, or its end when included") {
  for (const bool include : {false, true}) {
    StopStrings stop({"STOP"}, include);
    std::string released;
    CHECK_FALSE(stop.Append("a ST", true, &released));
    CHECK(stop.Append("OP and on", true, &released) == "STOP");
    CHECK(released == (include ? "a STOP" : "a "));
    CHECK(stop.held_bytes() == 0);
  }
}

TEST_CASE("StopStrings lets the string win that is complete first, then the first listed") {
  std::string released;
  StopStrings earliest({"abcdef", "cd"}, false);
  CHECK(earliest.Append("xabcdef", true, &released) == "cd");
  CHECK(released == "xab");
  released.clear();
  StopStrings listed({"bc", "abc"}, false);
  CHECK(listed.Append("xabc", true, &released) == "bc");
  CHECK(released == "xa");
}

TEST_CASE("StopStrings ignores a string that completes before min_tokens, not one that begins") {
  StopStrings stop({"ab"}, false);
  std::string released;
  CHECK_FALSE(stop.Append("ab a", false, &released));
  CHECK(released == "ab ");
  CHECK(stop.Append("b", true, &released) == "ab");
  CHECK(released == "ab ");
}

TEST_CASE("StopStrings without strings passes everything on at once") {
  StopStrings stop({""}, false);
  std::string released;
  CHECK(stop.empty());
  CHECK_FALSE(stop.Append("any", true, &released));
  CHECK(released == "any");
}

TEST_CASE("StopStrings releases what it held when the stream ends without a match") {
  StopStrings stop({"###"}, false);
  std::string released;
  CHECK_FALSE(stop.Append("a##", true, &released));
  CHECK(released == "a");
  stop.Flush(&released);
  CHECK(released == "a##");
}

}  // namespace
}  // namespace tandem
