#include "common/flag_json.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("flag_json: a table with every type, and without secrets") {
  bool on = true;
  std::optional<bool> maybe;
  int64_t count = 3;
  std::optional<double> share;
  std::string word = "a\"b";
  std::vector<std::string> keys = {"hidden"};
  const std::vector<Flag> flags = {
      {"on", &on, "A switch"},
      {"maybe", &maybe, "Another"},
      {"count", &count, "A number", {.env = "COUNT", .short_name = "c"}},
      {"share", &share, "A part"},
      {"word", &word, "A text", {.choices = {"a\"b", "c"}, .positional = true}},
      {"keys", &keys, "Texts", {.secret = true}}};
  CHECK(FlagTableJson(flags, "about\nit") ==
        R"({"about": "about\nit", "flags": [
{"name": "on", "short": "", "type": "bool", "default": "true", "choices": [], "env": "", "positional": false, "help": "A switch"},
{"name": "maybe", "short": "", "type": "bool", "default": "", "choices": [], "env": "", "positional": false, "help": "Another"},
{"name": "count", "short": "c", "type": "int", "default": "3", "choices": [], "env": "TANDEM_COUNT", "positional": false, "help": "A number"},
{"name": "share", "short": "", "type": "float", "default": "", "choices": [], "env": "", "positional": false, "help": "A part"},
{"name": "word", "short": "", "type": "text", "default": "a\"b", "choices": ["a\"b", "c"], "env": "", "positional": true, "help": "A text"},
{"name": "keys", "short": "", "type": "texts", "default": "", "choices": [], "env": "", "positional": false, "help": "Texts"}
]}
)");
}

}  // namespace
}  // namespace tandem
