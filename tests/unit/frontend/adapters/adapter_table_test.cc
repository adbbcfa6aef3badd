#include "frontend/adapters/adapter_table.h"

#include "frontend/adapters/adapter_directory.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int64_t kNow = 1'700'000'000;

ServedAdapter Load(AdapterTable* table, const std::string& name, const std::string& path,
                   bool in_place = false, int64_t now = kNow) {
  auto planned = table->PlanLoad({name, path}, in_place, now);
  REQUIRE(planned.ok());
  table->Commit(*planned);
  return *planned;
}

using Texts = std::vector<std::string>;

Texts Names(const AdapterTable& table) {
  Texts names;
  for (const ServedAdapter& adapter : table.served()->list()) names.push_back(adapter.lora.name);
  return names;
}

TEST_CASE("adapter table: ids count from 1, a plan that is dropped uses one up") {
  AdapterTable table({"base"});
  CHECK(table.ToText().empty());
  CHECK(Load(&table, "a", "/a").lora.id == 1);
  CHECK(table.PlanLoad({"b", "/b"}, false, kNow)->lora.id == 2);
  CHECK(Names(table) == Texts{"a"});
  CHECK(Load(&table, "b", "/b").lora.id == 3);
  CHECK(table.Remove("a")->lora.id == 1);
  CHECK(Load(&table, "a", "/a").lora.id == 4);
  CHECK(Names(table) == Texts{"b", "a"});
  CHECK_FALSE(table.ToText().empty());
}

TEST_CASE("adapter table: in place keeps id, place and time of creation") {
  AdapterTable table({"base"});
  Load(&table, "a", "/a");
  Load(&table, "b", "/b");
  const ServedAdapter again = Load(&table, "a", "/a2", /*in_place=*/true, kNow + 9);
  CHECK(again.lora.id == 1);
  CHECK(again.created == kNow);
  CHECK(Names(table) == Texts{"a", "b"});
  CHECK(table.served()->Find("a")->lora.path == "/a2");
  // Nothing has the name: a load like any other.
  CHECK(Load(&table, "c", "/c", /*in_place=*/true).lora.id == 3);
}

TEST_CASE("adapter table: a list that was taken stays as it is") {
  AdapterTable table({"base"});
  Load(&table, "a", "/a");
  const ServedAdaptersPtr before = table.served();
  Load(&table, "b", "/b");
  REQUIRE(table.Remove("a").ok());
  CHECK(before->list().size() == 1);
  CHECK(before->Find("a") != nullptr);
  CHECK(table.served()->Find("a") == nullptr);
}

TEST_CASE("adapter table: it keeps which files were there when a load began") {
  const TempFolder folder;
  folder.Write("adapter_config.json", "{}");
  folder.Write("adapter_model.safetensors", "1");
  AdapterTable table({"base"});
  const ServedAdapter planned = table.PlanLoad({"a", folder.path()}, false, kNow).value();
  CHECK_FALSE(planned.files.empty());
  CHECK(planned.files == AdapterFilesIdentity(folder.path()));
  folder.Write("adapter_model.safetensors", "22");  // while engines read
  CHECK(planned.files != AdapterFilesIdentity(folder.path()));
  table.Commit(planned);
  CHECK(AdapterDirectory::HasOtherFiles(*table.served(), planned.lora));
  table.Commit(*table.PlanLoad({"a", folder.path()}, /*in_place=*/true, kNow));
  CHECK_FALSE(AdapterDirectory::HasOtherFiles(*table.served(), planned.lora));
  // Of another adapter, or in a folder that only the engines see, nothing is known.
  wire::LoraRequest other = planned.lora;
  other.path = "/elsewhere";
  CHECK_FALSE(AdapterDirectory::HasOtherFiles(*table.served(), other));
  CHECK(Load(&table, "far", "/nowhere").files.empty());
  CHECK_FALSE(AdapterDirectory::HasOtherFiles(*table.served(), table.served()->Find("far")->lora));
}

TEST_CASE("adapter table: names that are taken or unknown are refused") {
  AdapterTable table({"base", "alias"});
  Load(&table, "a", "/a");
  const auto refusal = [&](const std::string& name, const std::string& path) {
    return table.PlanLoad({name, path}, false, kNow).status().message();
  };
  CHECK(refusal("", "/a") == "Both 'lora_name' and 'lora_path' must be provided.");
  CHECK(refusal("b", "") == "Both 'lora_name' and 'lora_path' must be provided.");
  CHECK(refusal("alias", "/a") == "The lora adapter 'alias' conflicts with a served base model.");
  CHECK(refusal("a", "/b").starts_with("The lora adapter 'a' has already been loaded."));
  CHECK(table.PlanLoad({"alias", "/a"}, true, kNow).status().code() ==
        StatusCode::kInvalidArgument);
  CHECK(table.Remove("").status().code() == StatusCode::kInvalidArgument);
  CHECK(table.Remove("b").status().code() == StatusCode::kNotFound);
  CHECK(table.Remove("base").status().message() == "The lora adapter 'base' cannot be found.");
}

TEST_CASE("adapter table: it has a limit, within which loads in place still are") {
  AdapterTable table({"base"});
  std::string text = R"({"next_id": 20000, "modules": [], "adapters": [)";
  for (size_t i = 0; i < AdapterTable::kMostAdapters; ++i) {
    text += (i > 0 ? "," : "") + (R"({"name": ")" + std::to_string(i)) +
            R"(", "id": 1, "path": "/a", "created": 1})";
  }
  REQUIRE(table.TakeOver(text + "]}", {}, kNow).ok());
  CHECK(table.PlanLoad({"new", "/a"}, false, kNow).status().message().starts_with("At most 10000"));
  CHECK(table.PlanLoad({"17", "/b"}, true, kNow).ok());
  REQUIRE(table.Remove("17").ok());
  CHECK(table.PlanLoad({"new", "/a"}, false, kNow).ok());
}

TEST_CASE("adapter table: the next process takes it over as text") {
  AdapterTable table({"base"});
  Load(&table, "a \"é\"\n", "/a");
  table.Commit(*table.PlanLoad({"b", "/b", "base", true}, false, kNow));
  REQUIRE(table.Remove("a \"é\"\n").ok());
  Load(&table, "ü", "/c \"\n");
  AdapterTable next({"base"});
  CHECK(next.TakeOver(table.ToText(), {}, kNow + 9)->empty());
  REQUIRE(next.served()->list().size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(next.served()->list()[i].lora == table.served()->list()[i].lora);
    CHECK(next.served()->list()[i].created == kNow);
    CHECK(next.served()->list()[i].files == table.served()->list()[i].files);
  }
  CHECK(Load(&next, "d", "/d").lora.id == 4);
  // A name that has become the model's is the model's.
  AdapterTable renamed({"ü"});
  REQUIRE(renamed.TakeOver(table.ToText(), {}, kNow).ok());
  CHECK(Names(renamed) == Texts{"b"});
}

TEST_CASE("adapter table: what was changed at run time stays, what the flags change is followed") {
  const AdapterModule a{"a", "/a"}, b{"b", "/b"}, c{"c", "/c"};
  AdapterTable table({"base"});
  REQUIRE(table.TakeModules({a, b, c}, kNow)->size() == 3);
  REQUIRE(table.Remove("b").ok());
  Load(&table, "c", "/c2", /*in_place=*/true);
  Load(&table, "d", "/d");
  const std::string text = table.ToText();
  const auto paths = [&](const std::vector<AdapterModule>& modules, const Texts& sent) {
    AdapterTable next({"base"});
    const auto to_send = next.TakeOver(text, modules, kNow);
    REQUIRE(to_send.ok());
    Texts sent_now, served;
    for (const wire::LoraRequest& lora : *to_send) sent_now.push_back(lora.name + lora.path);
    CHECK(sent_now == sent);
    for (const ServedAdapter& each : next.served()->list()) {
      served.push_back(each.lora.name + each.lora.path);
    }
    // And once more, with the same flags.
    AdapterTable third({"base"});
    CHECK(third.TakeOver(next.ToText(), modules, kNow)->empty());
    CHECK(third.served()->list().size() == served.size());
    return served;
  };
  CHECK(paths({a, b, c}, {}) == Texts{"a/a", "c/c2", "d/d"});
  CHECK(paths({b, c}, {}) == Texts{"c/c2", "d/d"});  // a was dropped
  CHECK(paths({}, {}) == Texts{"c/c2", "d/d"});      // c was replaced by a client
  const AdapterModule a2{"a", "/a2"}, d2{"d", "/d2"}, e{"e", "/e"};
  CHECK(paths({a2, b, c, d2, e}, {"a/a2", "d/d2", "e/e"}) == Texts{"c/c2", "d/d2", "a/a2", "e/e"});
}

TEST_CASE("adapter table: a text of another form is refused and changes nothing") {
  for (const char* text :
       {"x", "[]", "{}", R"({"next_id": 1})", R"({"next_id": 1, "adapters": []})",
        R"({"next_id": "1", "adapters": [], "modules": []})",
        R"({"next_id": 1, "adapters": [1], "modules": []})",
        R"({"next_id": 1, "adapters": [], "modules": [{"name": "a"}]})",
        R"({"next_id": 1, "adapters": [{"name": "a", "path": "/a", "id": 1}], "modules": []})"}) {
    CAPTURE(text);
    AdapterTable table({"base"});
    CHECK_FALSE(table.TakeOver(text, {}, kNow).ok());
    CHECK(table.ToText().empty());
    CHECK(table.served()->list().empty());
  }
}

}  // namespace
}  // namespace tandem
