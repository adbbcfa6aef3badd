#include "pooling/ignored_keys.h"

#include <filesystem>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Contains;

TEST_CASE("keys of sentence-transformers that are not followed are named") {
  const TempFolder folder;
  std::filesystem::create_directory(folder.PathOf("1_Pooling"));
  folder.Write("modules.json",
               R"([{"path": "", "type": "Transformer"}, {"path": "1_Pooling"}, 5])");
  CHECK(IgnoredPoolingKeys(folder.path()).empty());
  folder.Write("sentence_bert_config.json", R"({"do_lower_case": false, "max_seq_length": 8})");
  folder.Write("1_Pooling/config.json", R"({"include_prompt": true})");
  CHECK(IgnoredPoolingKeys(folder.path()).empty());

  folder.Write("sentence_bert_config.json", R"({"do_lower_case": true})");
  folder.Write("1_Pooling/config.json", R"({"include_prompt": false})");
  const auto lines = IgnoredPoolingKeys(folder.path());
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[0], Contains("sentence_bert_config.json: do_lower_case has no effect"));
  CHECK_THAT(lines[1], Contains("1_Pooling/config.json: include_prompt false has no effect"));

  // Broken files are for others to refuse; other models have none of them.
  folder.Write("sentence_bert_config.json", "{");
  folder.Write("1_Pooling/config.json", "[]");
  CHECK(IgnoredPoolingKeys(folder.path()).empty());
  CHECK(IgnoredPoolingKeys("/nowhere").empty());
}

}  // namespace
}  // namespace tandem
