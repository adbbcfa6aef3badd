#include "frontend/engine_client/utility_calls.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Setup {
  UtilityCalls::Callback Note(std::string name) {
    return [this, name](StatusOr<wire::RawValue> result) {
      results.push_back(name + ": " + (result.ok() ? result->packed : result.status().message()));
    };
  }
  UtilityCalls calls;
  std::vector<std::string> results;
};

TEST_CASE("utility_calls: a reply reaches its call once") {
  Setup setup;
  const uint64_t a = setup.calls.Add(0, setup.Note("a"));
  const uint64_t b = setup.calls.Add(0, setup.Note("b"));
  CHECK(a != b);
  setup.calls.HandleReply({b, std::nullopt, {"\xc3"}});
  setup.calls.HandleReply({a, "it failed", {}});
  setup.calls.HandleReply({a, std::nullopt, {}});
  setup.calls.HandleReply({12345, std::nullopt, {}});
  CHECK(setup.results == std::vector<std::string>{"b: \xc3", "a: it failed"});
}

TEST_CASE("utility_calls: calls of a lost engine fail, those of others wait on") {
  Setup setup;
  setup.calls.Add(0, [&](StatusOr<wire::RawValue> result) {
    setup.results.push_back(result.status().message());
    setup.calls.Add(0, setup.Note("next"));
  });
  const uint64_t other = setup.calls.Add(1, setup.Note("other"));
  setup.calls.FailAllOf(0, UnavailableError("gone"));
  CHECK(setup.results == std::vector<std::string>{"gone"});
  setup.calls.HandleReply({other, std::nullopt, {"x"}});
  setup.calls.FailAllOf(0, UnavailableError("gone again"));
  CHECK(setup.results == std::vector<std::string>{"gone", "other: x", "next: gone again"});
}

TEST_CASE("utility_calls: calls to an engine that was replaced are still its own") {
  Setup setup;
  const uint64_t before = setup.calls.Add(0, setup.Note("before"));
  setup.calls.Add(0, setup.Note("lost"));
  setup.calls.Rename(0, 2);
  setup.calls.HandleReply({before, std::nullopt, {"x"}});
  const uint64_t after = setup.calls.Add(0, setup.Note("after"));
  setup.calls.FailAllOf(2, UnavailableError("gone"));
  setup.calls.HandleReply({after, std::nullopt, {"y"}});
  CHECK(setup.results == std::vector<std::string>{"before: x", "lost: gone", "after: y"});
}

}  // namespace
}  // namespace tandem
