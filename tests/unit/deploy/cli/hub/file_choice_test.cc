#include "deploy/cli/hub/file_choice.h"

#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Names = std::set<std::string>;

HubListing Listing(const std::vector<std::string>& paths) {
  HubListing listing;
  for (const std::string& path : paths) {
    listing.files.push_back({.path = path, .size = 1, .hash = std::string(40, 'a'), .target = ""});
  }
  return listing;
}

Names Chosen(const std::vector<std::string>& paths, const std::string& quant = "") {
  const StatusOr<FileChoice> choice = ChooseFiles(Listing(paths), quant);
  if (!choice.ok()) return {choice.status().message()};
  Names names;
  for (const HubFile& file : choice->files) names.insert(file.path);
  return names;
}

TEST_CASE("file choice: safetensors, what describes them, and no copies in other formats") {
  CHECK(Chosen({"config.json", "model.safetensors", "pytorch_model.bin", "model.fp16.safetensors",
                "pytorch_model.bin.index.json", "tokenizer.model", "merges.txt", "README.md",
                "onnx/config.json", "additional_chat_templates/tool_use.jinja", "m-Q4_K_M.gguf"}) ==
        Names{"config.json", "model.safetensors", "tokenizer.model", "merges.txt",
              "additional_chat_templates/tool_use.jinja"});
  const auto sharded = ChooseFiles(
      Listing({"config.json", "model.safetensors.index.json", "model-00001-of-00001.safetensors"}),
      "");
  CHECK(sharded->shard_index == "model.safetensors.index.json");
  CHECK(Chosen({"adapter_config.json", "adapter_model.safetensors"}).size() == 2);
}

TEST_CASE("file choice: a GGUF file and all its parts") {
  const std::vector<std::string> paths = {"config.json", "m-Q2_K.gguf",
                                          "m-Q8_0-00002-of-00002.gguf",
                                          "m-Q8_0-00001-of-00002.gguf", "mmproj-F16.gguf"};
  CHECK(Chosen(paths) == Names{"m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"});
  CHECK(ChooseFiles(Listing(paths), "")->gguf == "m-Q8_0-00001-of-00002.gguf");
  CHECK(Chosen(paths, "q2_k") == Names{"m-Q2_K.gguf"});
  CHECK(Chosen(paths, "Q4_K_M") == Names{"it has no GGUF file of Q4_K_M, only Q2_K, Q8_0"});
  CHECK(Chosen({"m-Q8_0-00001-of-00003.gguf"}, "Q8_0") ==
        Names{"m-Q8_0-00001-of-00003.gguf: the hub has 1 of its 3 parts"});
}

TEST_CASE(
    "file choice: of several GGUF files of a quant the exact one, else the first, with a note") {
  const auto choice = [](const std::vector<std::string>& paths, const std::string& quant) {
    return ChooseFiles(Listing(paths), quant).value();
  };
  const FileChoice exact = choice({"UD-Q4_K_M/m-UD-Q4_K_M.gguf", "m-Q4_K_M.gguf"}, "q4_k_m");
  CHECK(exact.gguf == "m-Q4_K_M.gguf");
  CHECK(exact.note.empty());
  CHECK(choice({"m-UD-Q4_K_M.gguf", "m-Q8_0.gguf"}, "Q4_K_M").gguf == "m-UD-Q4_K_M.gguf");
  const FileChoice first = choice({"b-Q8_0.gguf", "a-Q8_0.gguf", "mmproj-Q8_0.gguf"}, "Q8_0");
  CHECK(first.gguf == "a-Q8_0.gguf");
  CHECK(first.note == "it has 2 such GGUF files; a-Q8_0.gguf is taken, not b-Q8_0.gguf");
}

TEST_CASE("file choice: safetensors of other names are named") {
  CHECK(Chosen({"config.json", "gptq_model-4bit.safetensors"}) ==
        Names{"it has neither model.safetensors nor an index of shards, only files of other "
              "names, such as gptq_model-4bit.safetensors"});
}

TEST_CASE("file choice: shards must be listed") {
  const HubListing listing = Listing({"a.safetensors", "b.safetensors", "c.safetensors"});
  const auto shards = ChooseShards(
      listing,
      R"({"weight_map": {"x": "a.safetensors", "y": "c.safetensors", "z": "a.safetensors"}})");
  REQUIRE(shards.ok());
  CHECK(shards->size() == 2);
  for (const char* bad : {"", "[]", "{}", R"({"weight_map": {"x": 1}})",
                          R"({"weight_map": {"x": "../a.safetensors"}})"}) {
    CAPTURE(bad);
    CHECK(ChooseShards(listing, bad).status().code() == StatusCode::kDataLoss);
  }
}

TEST_CASE("listing: paths that stay in their folder") {
  for (const char* good : {"a", "a/b.json", "a b", "...", "..a", "\xC3\xA9.txt"}) {
    CAPTURE(good);
    CHECK(IsSafePath(good));
  }
  for (const char* bad : {"", "/a", "a/", "a//b", ".", "..", "a/../b", "a/..", "./a", "a\\b",
                          "a\nb", "\xC3", "\x7F"}) {
    CAPTURE(bad);
    CHECK_FALSE(IsSafePath(bad));
  }
  CHECK_FALSE(IsSafePath(std::string("a\0b", 3)));
}

}  // namespace
}  // namespace tandem
