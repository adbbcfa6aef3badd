#include "frontend/chat/named_templates.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("chats with tools have the template tool_use, all others the default") {
  const auto both = ChooseTemplates({{"default", "D"}, {"rag", "R"}, {"tool_use", "T"}});
  REQUIRE(both.ok());
  CHECK(both->chat == "D");
  CHECK(both->with_tools == "T");
  const auto one = ChooseTemplates({{"default", "D"}, {"rag", "R"}});
  REQUIRE(one.ok());
  CHECK(one->chat == "D");
  CHECK(one->with_tools.empty());
}

TEST_CASE("the only template is used whatever its name, and of several one must be the default") {
  CHECK(ChooseTemplates({})->chat.empty());
  const auto only = ChooseTemplates({{"tool_use", "T"}});
  REQUIRE(only.ok());
  CHECK(only->chat == "T");
  CHECK(only->with_tools.empty());
  const auto unclear = ChooseTemplates({{"rag", "R"}, {"tool_use", "T"}});
  REQUIRE_FALSE(unclear.ok());
  CHECK_THAT(unclear.status().message(),
             Catch::Contains("--chat-template NAME") && Catch::Contains("rag, tool_use"));
}

}  // namespace
}  // namespace tandem
