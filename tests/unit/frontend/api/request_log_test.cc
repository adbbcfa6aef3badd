#include "frontend/api/request_log.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("request log: texts are quoted and cut at characters") {
  CHECK(ShownText("a\nb\"c", {}) == R"("a\nb\"c")");
  CHECK(ShownText("", {}) == R"("")");
  CHECK(ShownText("abc", 3) == R"("abc")");
  CHECK(ShownText("abc", 2) == "\"ab\"…");
  CHECK(ShownText("abc", 0) == "\"\"…");
  // Two, three and four bytes.
  CHECK(ShownText("é€😀x", 3) == "\"é€😀\"…");
  CHECK(ShownText("é€😀", 3) == "\"é€😀\"");
  CHECK(ShownText("\xEF\xBF\xBD\xEF\xBF\xBD", 1) == "\"\xEF\xBF\xBD\"…");
  CHECK(ShownText(std::string(1 << 20, 'a'), 10).size() == 12 + std::string("…").size());
}

}  // namespace
}  // namespace tandem
