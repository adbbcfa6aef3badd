#include "frontend/openai/json.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "frontend/openai/python_json.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("ParseJson keeps the order of keys and Python's numbers") {
  const auto value = ParseJson(R"({"b": 0.7, "a": [1, 1e22, -3], "é": "\u00e9\ud83d\ude00"})");
  REQUIRE(value.ok());
  CHECK(DumpJson(**value) == "{\"b\":0.7,\"a\":[1,1e+22,-3],\"é\":\"é😀\"}");
}

TEST_CASE("ParseJson refuses text that is not JSON and names the place") {
  for (const char* text : {"", "{", "[1,]", "{\"a\":1,}", "nul", "NaN", "Infinity", "01", "'a'",
                           "\"\\ud800\"", "\"\\udc00x\"", "\"\xff\"", "\"\xc0\xaf\"", "1 2", "[] x",
                           "\"a\nb\"", "1e999", "// c\n1"}) {
    CAPTURE(text);
    const auto value = ParseJson(text);
    CHECK_FALSE(value.ok());
    CHECK_FALSE(value.status().message().empty());
  }
}

TEST_CASE("ParseJson refuses a repeated key among few and many") {
  CHECK_FALSE(ParseJson(R"({"a": 1, "b": 2, "a": 3})").ok());
  std::string many = "{";
  for (int i = 0; i < 5000; ++i) many += "\"k" + std::to_string(i) + "\":1,";
  CHECK(ParseJson(many + "\"z\":1}").ok());
  CHECK_FALSE(ParseJson(many + "\"k17\":1}").ok());
  // Equal keys of different objects are fine.
  CHECK(ParseJson(R"([{"a": 1}, {"a": {"a": 1}}])").ok());
}

TEST_CASE("ParseJson takes the last of a repeated key where it is asked to, as Python") {
  const JsonLimits limits = {.takes_repeated_keys = true};
  const auto read = [&limits](const std::string& text) {
    const auto value = ParseJson(text, limits);
    return value.ok() ? DumpJson(**value) : value.status().message();
  };
  CHECK(read(R"({"a": 1, "b": 2, "a": [3, {"c": 4, "c": 5}]})") == R"({"a":[3,{"c":5}],"b":2})");
  CHECK(read(R"({"a": {"x": 1}, "a": {"y": 2, "y": {}}, "a": {"z": 3}})") == R"({"a":{"z":3}})");
  std::string many = "{", sum = "{";
  for (int i = 0; i < 5000; ++i)
    many += "\"k" + std::to_string(i % 2500) + "\":" + std::to_string(i) + ",";
  for (int i = 0; i < 2500; ++i)
    sum += "\"k" + std::to_string(i) + "\":" + std::to_string(2500 + i) + ",";
  CHECK(read(many + "\"z\":1}") == sum + "\"z\":1}");
}

TEST_CASE("ParsePythonJson takes the numbers of Python") {
  const auto read = [](const std::string& text) {
    CAPTURE(text);
    const auto value = ParsePythonJson(text);
    return value.ok() ? **value : Json("refused");
  };
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(std::isnan(read("[NaN]")[0].get<double>()));
  CHECK(read("{\"NaN\": [Infinity, -Infinity,\"NaN\"]}") ==
        Json({{"NaN", {infinity, -infinity, "NaN"}}}));
  CHECK(read("[1e400, -1.5E999 , 1e5, NaN]")[1] == -infinity);
  CHECK(read("[0e901, 0e902, Infinity]") == Json({0.0, 0.0, infinity}));
  CHECK(read("[0e901]") == Json({0.0}));
  const Json big =
      read("[123456789012345678901234567890, 18446744073709551615, -9223372036854775809]");
  CHECK(std::string(big[0].get_binary().begin(), big[0].get_binary().end()) ==
        "123456789012345678901234567890");
  CHECK(big[1] == Json(UINT64_MAX));
  CHECK(big[2].is_binary());
  CHECK(read(R"(["a\"NaN", "\\", NaN])")[0] == "a\"NaN");
  for (const char* text : {"-NaN", "NaN1", "1NaN", "[nan]", "inf", "+Infinity", "Infinity5",
                           "{NaN: 1}", "[NaN", "[NaN] x", "\"NaN", "0x1p9999", "[--Infinity]"}) {
    CHECK(read(text) == "refused");
  }
  CHECK_FALSE(ParseJson("NaN").ok());
}

TEST_CASE("ParseJson keeps its limits") {
  JsonLimits limits;
  limits.max_depth = 4;
  limits.max_values = 10;
  limits.max_object_keys = 3;
  CHECK(ParseJson("[[[[1]]]]", limits).ok());
  CHECK_FALSE(ParseJson("[[[[[1]]]]]", limits).ok());
  CHECK(ParseJson("[1,2,3,4,5,6,7,8,9]", limits).ok());
  CHECK_FALSE(ParseJson("[1,2,3,4,5,6,7,8,9,10]", limits).ok());
  CHECK(ParseJson(R"({"a":1,"b":2,"c":3})", limits).ok());
  CHECK_FALSE(ParseJson(R"({"a":1,"b":2,"c":3,"d":4})", limits).ok());
  CHECK_FALSE(ParseJson(std::string(200'000, '[')).ok());
  CHECK_FALSE(ParseJson([] {
                std::string deep;
                for (int i = 0; i < 200'000; ++i) deep += "{\"a\":";
                return deep;
              }())
                  .ok());
}

TEST_CASE("DumpJson writes invalid UTF-8 as U+FFFD") {
  CHECK(DumpJson(Json("a\xff")) == "\"a\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace tandem
