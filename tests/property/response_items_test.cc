// Random messages, cut at random: the items are the same under every cutting, and the events add up
// to them.

#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "frontend/api/response_items.h"
#include "tests/support/dice.h"
#include "tests/support/response_events.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

enum class Kind { kReasoning, kContent, kCall };
struct Piece {
  Kind kind;
  std::string text;
  std::string name = {};  // of a call that begins here
};

// One character, or a call's beginning, per piece.
std::vector<Piece> DrawMessage(Dice& dice) {
  static const std::vector<std::string> kTexts = {
      "a", " ", "\n", "\"", "\\", "é", "🎈", "\xEF\xBF\xBD", "{", "}", "\x01", "input"};
  static const std::vector<std::string> kNames = {"now", "sh", "fs__ls", "made_up"};
  std::vector<Piece> pieces;
  for (int part = dice.Roll(0, 6); part > 0; --part) {
    const auto kind = static_cast<Kind>(dice.Roll(0, 2));
    if (kind == Kind::kCall) {
      pieces.push_back({kind, "", kNames[static_cast<size_t>(dice.Roll(0, 3))]});
      if (dice.Chance(2)) pieces.push_back({kind, "{\"input\": \""});
    }
    for (int i = dice.Roll(kind == Kind::kCall ? 0 : 1, 8); i > 0; --i) {
      pieces.push_back({kind, kTexts[static_cast<size_t>(dice.Roll(0, 11))]});
    }
    if (kind == Kind::kCall && dice.Chance(2)) pieces.push_back({kind, "\"}"});
  }
  return pieces;
}

void Add(const Piece& piece, int* num_calls, MessageDelta* delta) {
  if (piece.kind == Kind::kReasoning) return delta->AddReasoning(piece.text);
  if (piece.kind == Kind::kContent) return delta->AddContent(piece.text);
  if (!piece.name.empty()) ++*num_calls;
  const int index = *num_calls - 1;
  const bool goes_on = piece.name.empty() && !delta->tool_calls.empty();
  if (goes_on) {
    delta->tool_calls.back().arguments += piece.text;
  } else {
    const std::string id = piece.name.empty() ? "" : "call-" + std::to_string(index);
    delta->AddCall({index, id, piece.name, piece.text});
  }
}

// one_in: a delta ends after a piece with this chance; 1: after each.
json Run(const std::vector<Piece>& pieces, int one_in, bool is_whole, Dice& dice) {
  const ResponseTools tools = {
      {"now", "now", "", false}, {"sh", "sh", "", true}, {"fs__ls", "ls", "fs", false}};
  std::string stream;
  ResponseEvents events(&stream);
  events.Append("response.created", {{"response", {{"status", "in_progress"}}}});
  events.Append("response.in_progress", {{"response", {{"status", "in_progress"}}}});
  ResponseItems items(&tools, std::nullopt, &events);
  ResponseItems silent(&tools, std::nullopt, nullptr);
  int num_calls = 0;
  MessageDelta delta;
  const auto flush = [&] {
    items.Append(delta);
    silent.Append(delta);
    delta = MessageDelta();
  };
  for (const Piece& piece : pieces) {
    Add(piece, &num_calls, &delta);
    if (dice.Chance(one_in)) flush();
  }
  flush();
  items.End(is_whole);
  silent.End(is_whole);
  const char* const status = is_whole ? "completed" : "incomplete";
  events.Append(std::string("response.") + status,
                {{"response", {{"status", status}, {"output", items.output()}}}});
  json output = AssembleResponse(ReadResponseEvents(stream))["output"];
  json quiet = json::parse(DumpJson(silent.output()));
  for (json* list : {&output, &quiet}) {
    for (json& item : *list) item.erase("id");
  }
  CHECK(output == quiet);
  return output;
}

TEST_CASE("Response items: every cutting gives the same items, and events that add up to them") {
  const unsigned seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  Dice dice(seed);
  for (int round = 0; round < 1000; ++round) {
    CAPTURE(seed, round);
    const std::vector<Piece> pieces = DrawMessage(dice);
    const bool is_whole = dice.Chance(2);
    const json finest = Run(pieces, 1, is_whole, dice);
    CHECK(Run(pieces, 3, is_whole, dice) == finest);
    CHECK(Run(pieces, 1 << 20, is_whole, dice) == finest);
  }
}

}  // namespace
}  // namespace tandem
