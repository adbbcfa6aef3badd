#include "common/runtime_folder.h"

#include <filesystem>
#include <string>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("runtime folder: that of a login session is taken only where the user lingers") {
  const TempFolder root;
  const std::string own = root.PathOf("user/1000");
  std::filesystem::create_directories(own);
  const auto choose = [&] {
    return ChooseRuntimeFolder(own.c_str(), {1000, "anna"},
                               {root.PathOf("user"), root.PathOf("linger")});
  };
  CHECK(choose() == "/tmp");
  root.Write("linger/bert", "");
  CHECK(choose() == "/tmp");
  root.Write("linger/anna", "");
  CHECK(choose() == own);
}

TEST_CASE("runtime folder: another one is taken as it is given, and /tmp where there is none") {
  const TempFolder root;
  const auto choose = [&](const char* given) {
    return ChooseRuntimeFolder(given, {1000, "anna"}, {"/run/user", root.path()});
  };
  CHECK(choose(root.path().c_str()) == root.path());
  CHECK(choose(root.PathOf("gone").c_str()) == "/tmp");
  CHECK(choose(nullptr) == "/tmp");
  CHECK(choose("") == "/tmp");
  CHECK(choose("run") == "/tmp");
}

}  // namespace
}  // namespace tandem
