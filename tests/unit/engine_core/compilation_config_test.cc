#include "engine_core/compilation_config.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

CompilationConfig Parse(const std::string& text, std::optional<int64_t> level = {},
                        bool is_cuda = true) {
  const auto config = ParseCompilationConfig(text, level, is_cuda);
  INFO(config.status().message());
  REQUIRE(config.ok());
  return *config;
}

std::string Refusal(const std::string& text, std::optional<int64_t> level = {}) {
  return ParseCompilationConfig(text, level, /*is_cuda=*/true).status().message();
}

TEST_CASE("compilation config: which steps are captured") {
  CHECK(Parse("").captures);
  CHECK(Parse(R"({"cudagraph_mode": "FULL_DECODE_ONLY"})").captures);
  CHECK(Parse(R"({"cudagraph_mode": null})").captures);
  CHECK_FALSE(Parse(R"({"cudagraph_mode": "none"})").captures);
  CHECK_FALSE(Parse("", 0).captures);
  CHECK(Parse("", 2).captures);
  CHECK(Parse("", 1, /*is_cuda=*/false).captures);
  const CompilationConfig both = Parse(R"({"cudagraph_mode": "FULL_AND_PIECEWISE"})");
  CHECK(both.captures);
  CHECK(both.note.find("prefills are not") != std::string::npos);
}

TEST_CASE("compilation config: a mode that would measure something else is refused on cuda") {
  for (const char* mode : {"FULL", "PIECEWISE", "piecewise", "FASTEST"}) {
    CAPTURE(mode);
    CHECK(Refusal("{\"cudagraph_mode\": \"" + std::string(mode) + "\"}")
              .find("must be FULL_DECODE_ONLY") != std::string::npos);
  }
  CHECK(Refusal(R"({"cudagraph_mode": 2})").find("must be FULL_DECODE_ONLY") != std::string::npos);
  CHECK(Refusal("", 1).find("--optimization-level 1") == 0);
  CHECK(Parse(R"({"cudagraph_mode": "PIECEWISE"})", {}, /*is_cuda=*/false)
            .note.find("only a GPU has graphs") != std::string::npos);
}

TEST_CASE("compilation config: sizes") {
  const CompilationConfig config =
      Parse(R"({"cudagraph_capture_sizes": [1, 8], "max_cudagraph_capture_size": 8})");
  CHECK(config.capture_sizes == std::vector<int64_t>{1, 8});
  CHECK(config.max_capture_size == 8);
  CHECK_FALSE(Parse(R"({"cudagraph_capture_sizes": []})").captures);
  CHECK(Refusal(R"({"cudagraph_capture_sizes": [0]})").find("numbers from 1") != std::string::npos);
  CHECK(Refusal(R"({"cudagraph_capture_sizes": 8})").find("numbers from 1") != std::string::npos);
  CHECK(Refusal(R"({"max_cudagraph_capture_size": "8"})").find("from 0") != std::string::npos);
}

TEST_CASE("compilation config: the compiler's keys have no effect, unknown ones are refused") {
  CHECK(Parse(R"({"mode": 3, "pass_config": {"a": true}})").ignored ==
        std::vector<std::string>{"mode", "pass_config"});
  CHECK(Refusal(R"({"cudagraph_mod": "NONE"})").find("no key is called cudagraph_mod") !=
        std::string::npos);
  CHECK(Refusal("[1]") == "--compilation-config [1]: must be a JSON object");
  CHECK(Refusal("{") == "--compilation-config {: must be a JSON object");
}

}  // namespace
}  // namespace tandem
