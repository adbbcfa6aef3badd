#include "frontend/adapters/adapter_modules.h"

#include <cstdlib>
#include <filesystem>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::string Refusal(const std::vector<std::string>& items) {
  const auto modules = ParseAdapterModules(items, {"base", "other"});
  REQUIRE_FALSE(modules.ok());
  CHECK(modules.status().code() == StatusCode::kInvalidArgument);
  return modules.status().message();
}

TEST_CASE("adapter modules: both forms, in their order, empty ones skipped") {
  const auto modules = ParseAdapterModules(
      {"a=/p=a", "", R"({"name": "b", "path": "/p/b", "base_model_name": "other"})",
       R"({"name": "c", "path": "/c", "base_model_name": null, "is_3d_lora_weight": true})"},
      {"base", "other"});
  REQUIRE(modules.ok());
  CHECK(*modules == std::vector<AdapterModule>{
                        {"a", "/p=a"}, {"b", "/p/b", "other"}, {"c", "/c", std::nullopt, true}});
}

TEST_CASE("adapter modules: what has neither form is refused, with the item") {
  for (const char* item :
       {"noequals", "a=/p,b=/q", "=/p", "a=", "[1]", "{}", R"({"name": "a"})",
        R"({"name": "a", "path": 5})", R"({"name": "a", "path": "/p", "rank": 8})",
        R"({"name": "a", "path": "/p", "is_3d_lora_weight": "yes"})"}) {
    CAPTURE(item);
    CHECK(Refusal({item}).starts_with("--lora-modules " + std::string(item) + ": "));
  }
  CHECK(Refusal({R"({"name": "a", "path": "/p", "rank": 8})"}).find("its key rank") !=
        std::string::npos);
  CHECK(Refusal({"a=/p,q"}).find("name=path without a comma") != std::string::npos);
  for (const char* item : {"a=/p\xc3", "\xff=/p"}) {
    CHECK(Refusal({item}).ends_with("is not UTF-8, which names and paths of adapters must be"));
  }
}

TEST_CASE("adapter modules: a name is the model's or one adapter's") {
  CHECK(Refusal({"other=/p"}) == "--lora-modules other=/p: other is a name of the model itself");
  CHECK(Refusal({"a=/p", "a=/q"}) == "--lora-modules a=/q: another adapter has the name a");
}

TEST_CASE("adapter paths are absolute") {
  ::setenv("HOME", "/home/x", 1);
  CHECK(AbsoluteAdapterPath("~/a") == "/home/x/a");
  CHECK(AbsoluteAdapterPath("/a") == "/a");
  CHECK(AbsoluteAdapterPath("a/b") == (std::filesystem::current_path() / "a/b").string());
}

}  // namespace
}  // namespace tandem
