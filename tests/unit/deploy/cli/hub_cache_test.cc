#include "deploy/cli/hub_cache.h"

#include <cstdlib>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// A cache as `hf download` leaves it.
struct Cache {
  Cache() {
    folder.Write("models--org--name/refs/main", "c0ffee\n");
    folder.Write("models--org--name/refs/v1.0", "0ld");
    folder.Write("models--org--name/snapshots/c0ffee/config.json", "{}");
    folder.Write("models--org--name/snapshots/0ld/config.json", "{}");
    folder.Write("models--org--name/refs/gone", "missing");
  }
  std::string Snapshot(const std::string& commit) const {
    return folder.PathOf("models--org--name/snapshots/" + commit);
  }
  StatusOr<std::optional<std::string>> Find(const std::string& name,
                                            const std::string& revision = "") const {
    return FindInHubCache(name, {folder.path(), revision});
  }
  TempFolder folder;
};

TEST_CASE("hub cache: a name becomes the folder of its revision") {
  const Cache cache;
  CHECK(**cache.Find("org/name") == cache.Snapshot("c0ffee"));
  CHECK(**cache.Find("org/name", "main") == cache.Snapshot("c0ffee"));
  CHECK(**cache.Find("org/name", "v1.0") == cache.Snapshot("0ld"));
  CHECK(**cache.Find("org/name", "0ld") == cache.Snapshot("0ld"));
}

TEST_CASE("hub cache: a name of one part has a folder of its own") {
  const Cache cache;
  cache.folder.Write("models--gpt2/refs/main", "beef");
  cache.folder.Write("models--gpt2/snapshots/beef/config.json", "{}");
  CHECK(**cache.Find("gpt2") == cache.folder.path() + "/models--gpt2/snapshots/beef");
  CHECK(cache.Find("gpt2", "v2").status().code() == StatusCode::kNotFound);
}

TEST_CASE("hub cache: paths are left alone") {
  const Cache cache;
  for (const char* path :
       {"", "folder", "/org/name", "./name", "../name", "~/name", "a/b/c", "org/", "org/x.gguf"}) {
    CAPTURE(path);
    const auto found = cache.Find(path);
    REQUIRE(found.ok());
    CHECK_FALSE(found->has_value());
  }
}

TEST_CASE("hub cache: what it does not have is an error with the command that gets it") {
  const Cache cache;
  CHECK(cache.Find("org/other").status().message() == "org/other is neither a folder nor in " +
                                                          cache.folder.path() +
                                                          "; `tandem pull org/other` downloads it");
  for (const char* revision : {"v2", "gone"}) {
    CAPTURE(revision);
    const Status status = cache.Find("org/name", revision).status();
    CHECK(status.code() == StatusCode::kNotFound);
    CHECK(status.message().find("revision " + std::string(revision)) == 0);
    CHECK(status.message().ends_with("`tandem pull org/name --revision " + std::string(revision) +
                                     "` downloads it"));
  }
  CHECK(cache.Find("org/name", "../../x").status().code() == StatusCode::kInvalidArgument);
  cache.folder.Write("models--org--name/refs/evil", "../../../etc");
  CHECK(cache.Find("org/name:evil").status().code() == StatusCode::kDataLoss);
}

TEST_CASE("hub cache: a model without all its weights is not there") {
  const Cache cache;
  const auto find = [&cache](const std::string& name) {
    return FindInHubCache(name, {cache.folder.path(), "", true});
  };
  const std::string files = "models--org--name/snapshots/c0ffee/";
  CHECK(find("org/name").status().code() == StatusCode::kNotFound);
  cache.folder.Write(files + "model.safetensors.index.json",
                     R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  cache.folder.Write(files + "1.safetensors", "x");
  CHECK_FALSE(find("org/name").ok());
  cache.folder.Write(files + "2.safetensors", "x");
  CHECK(**find("org/name") == cache.Snapshot("c0ffee"));

  CHECK_FALSE(find("org/name:Q8_0").ok());
  cache.folder.Write(files + "m-Q8_0-00001-of-00002.gguf", "x");
  CHECK_FALSE(find("org/name:Q8_0").ok());
  cache.folder.Write(files + "m-Q8_0-00002-of-00002.gguf", "x");
  CHECK(**find("org/name:q8_0") == cache.Snapshot("c0ffee") + "/m-Q8_0-00001-of-00002.gguf");
}

TEST_CASE("hub cache: of several GGUF files a name means Q4_K_M, else Q8_0, else the first") {
  const Cache cache;
  const std::string files = "models--org--name/snapshots/c0ffee/";
  for (const char* quant : {"Q2_K", "Q8_0", "Q4_K_M"}) {
    cache.folder.Write(files + "m-" + quant + ".gguf", "x");
    CHECK(FindWholeModel(cache.Snapshot("c0ffee"), "") ==
          cache.Snapshot("c0ffee") + "/m-" + quant + ".gguf");
  }
}

TEST_CASE("hub cache: where it is") {
  ::setenv("HF_HUB_CACHE", "/a", 1);
  ::setenv("HF_HOME", "/b", 1);
  CHECK(HubCacheFolder() == "/a");
  ::unsetenv("HF_HUB_CACHE");
  CHECK(HubCacheFolder() == "/b/hub");
  ::unsetenv("HF_HOME");
  ::setenv("XDG_CACHE_HOME", "/c", 1);
  CHECK(HubCacheFolder() == "/c/huggingface/hub");
  ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace tandem
