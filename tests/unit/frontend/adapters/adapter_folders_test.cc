#include "frontend/adapters/adapter_folders.h"

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("adapter folders: a name is a folder with an adapter in it") {
  const TempFolder root;
  root.Write("cache/sql/adapter_config.json", "{}");
  root.Write("cache/org--b c/adapter_config.json", "{}");
  root.Write("cache/empty/readme", "");
  root.Write("cache/folder/adapter_config.json/file", "");
  const AdapterFolders folders(root.PathOf("cache"));
  CHECK(folders.Find("sql") == root.PathOf("cache") + "/sql");
  CHECK(folders.Find("org--b c") == root.PathOf("cache") + "/org--b c");
  for (const char* absent : {"empty", "folder", "nothing", "SQL", "sql "}) {
    CAPTURE(absent);
    CHECK_FALSE(folders.Find(absent));
  }
  CHECK_FALSE(AdapterFolders().Find("sql"));
}

TEST_CASE("adapter folders: no name leads out of the folder") {
  const TempFolder root;
  root.Write("adapter_config.json", "{}");
  root.Write("other/adapter_config.json", "{}");
  root.Write("cache/adapter_config.json", "{}");
  root.Write("cache/.hidden/adapter_config.json", "{}");
  root.Write("cache/a/b/adapter_config.json", "{}");
  root.Write("cache/sql/adapter_config.json", "{}");
  const AdapterFolders folders(root.PathOf("cache"));
  REQUIRE(folders.Find("sql"));
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../other"),
        std::string("sql/../../other"), std::string("a/b"), std::string("/") + root.PathOf("other"),
        root.PathOf("other"), std::string("sql/"), std::string("sql/."), std::string(".hidden"),
        std::string("~"), std::string("sql\0", 4), std::string("\0../other", 9),
        std::string("sql\n"), std::string(256, 'a'), std::string(1 << 20, 'a'),
        std::string("..\\other"), std::string("%2e%2e%2fother")}) {
    CAPTURE(name);
    CHECK_FALSE(folders.Find(name));
  }
}

}  // namespace
}  // namespace tandem
