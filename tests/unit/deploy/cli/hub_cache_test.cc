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

TEST_CASE("hub cache: paths are left alone") {
  const Cache cache;
  for (const char* path :
       {"", "folder", "/org/name", "./name", "../name", "~/name", "a/b/c", "org/"}) {
    CAPTURE(path);
    const auto found = cache.Find(path);
    REQUIRE(found.ok());
    CHECK_FALSE(found->has_value());
  }
}

TEST_CASE("hub cache: what it does not have is an error with the command that gets it") {
  const Cache cache;
  CHECK(cache.Find("org/other").status().message() ==
        "org/other is neither a folder nor in " + cache.folder.path() +
            "; nothing is downloaded here, `hf download org/other` puts it there");
  for (const char* revision : {"v2", "gone"}) {
    CAPTURE(revision);
    const Status status = cache.Find("org/name", revision).status();
    CHECK(status.code() == StatusCode::kNotFound);
    CHECK(status.message().find("revision " + std::string(revision)) == 0);
  }
  CHECK_FALSE(cache.Find("org/name", "../../x").ok());
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
