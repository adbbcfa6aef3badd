// Drawn messages, cut into deltas at random: every cutting gives the same blocks, and a stream adds
// up to the response in one body.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/anthropic_events.h"
#include "tests/support/api_model.h"
#include "tests/support/dice.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

// One character of a message, and where it belongs.
struct Atom {
  enum Kind { kReasoning, kContent, kCall } kind;
  int call = 0;
  std::string text;  // a whole character; empty for the start of a call
};

void AddCharacters(Dice& dice, Atom::Kind kind, int call, std::vector<Atom>* message) {
  static const char* const kCharacters[] = {
      "a", " ", "\n",           "\"", "\\",     "\r",   "\t",   "\x01",        "\x7f",
      "é", "😀", "\xEF\xBF\xBD", "{",  "\u2028", "data", "\n\n", "event: x\n\n"};
  const int size = dice.Chance(20) ? 3000 : dice.Roll(1, 12);
  for (int i = 0; i < size; ++i) message->push_back({kind, call, kCharacters[dice.Roll(0, 16)]});
}

// Reasoning, texts and calls in any order. Arguments are an object with one text.
std::vector<Atom> DrawMessage(Dice& dice) {
  std::vector<Atom> message;
  int num_calls = 0;
  const int num_parts = dice.Roll(0, 6);
  for (int part = 0; part < num_parts; ++part) {
    const int kind = dice.Roll(0, 2);
    if (kind < 2) {
      AddCharacters(dice, kind == 0 ? Atom::kReasoning : Atom::kContent, 0, &message);
      continue;
    }
    message.push_back({Atom::kCall, num_calls, ""});
    for (const char c : std::string("{\"x\": \"y\"}")) {
      message.push_back({Atom::kCall, num_calls, std::string(1, c)});
    }
    ++num_calls;
  }
  return message;
}

void AddAtom(const Atom& atom, MessageDelta* delta) {
  if (atom.kind == Atom::kReasoning) {
    delta->AddReasoning(atom.text);
  } else if (atom.kind == Atom::kContent) {
    delta->AddContent(atom.text);
  } else {
    const auto& calls = delta->tool_calls;
    const std::string number = std::to_string(atom.call);
    if (atom.text.empty()) {
      delta->AddCall({atom.call, "id" + number, "f" + number, ""});
    } else if (calls.empty() || calls.back().index != atom.call) {
      delta->AddCall({atom.call, "", "", ""});
    }
    delta->tool_calls.back().arguments += atom.text;
  }
}

json ExpectedBlocks(const std::vector<Atom>& message) {
  json blocks = json::array();
  const Atom* before = nullptr;
  for (const Atom& atom : message) {
    const bool is_new = before == nullptr || before->kind != atom.kind || before->call != atom.call;
    const std::string number = std::to_string(atom.call);
    if (is_new && atom.kind == Atom::kReasoning) {
      blocks.push_back({{"type", "thinking"}, {"thinking", ""}});
    } else if (is_new && atom.kind == Atom::kContent) {
      blocks.push_back({{"type", "text"}, {"text", ""}});
    } else if (is_new) {
      blocks.push_back({{"type", "tool_use"},
                        {"id", "id" + number},
                        {"name", "f" + number},
                        {"input", {{"x", "y"}}}});
    }
    before = &atom;
    if (atom.kind == Atom::kCall) continue;
    json& text = blocks.back()[atom.kind == Atom::kContent ? "text" : "thinking"];
    text = text.get<std::string>() + atom.text;
  }
  return blocks;
}

// one_in: a delta ends after an atom with this chance.
std::string Write(const ApiModel& model, const std::vector<Atom>& message, bool stream, Dice& dice,
                  int one_in) {
  std::string out;
  WriterInput input;
  input.head = {"id", 0, "m", ""};
  input.stream = stream;
  input.out = &out;
  const auto writer = model.MakeCall("/v1/messages")->MakeWriter(std::move(input));
  MessageDelta delta;
  for (const Atom& atom : message) {
    AddAtom(atom, &delta);
    if (!dice.Chance(one_in)) continue;
    writer->WriteDelta(0, delta, {});
    delta = {};
  }
  delta.finish_reason = FinishReason::kStop;
  writer->WriteDelta(0, delta, {});
  writer->WriteEnd({});
  return out;
}

// Calls' input parsed; signatures, which are random, removed.
json Comparable(json blocks) {
  for (json& block : blocks) {
    block.erase("signature");
    if (!block.contains("input_json")) continue;
    block["input"] = json::parse(block["input_json"].get<std::string>());
    block.erase("input_json");
  }
  return blocks;
}

TEST_CASE("Messages: however the deltas are cut, stream and body have the same blocks") {
  const ApiModel model;
  const uint64_t seed = 20261122;
  CAPTURE(seed);
  Dice dice(seed);
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const std::vector<Atom> message = DrawMessage(dice);
    const json expected = ExpectedBlocks(message);
    for (const int one_in : {1, 3, 20, 1000000}) {
      const json streamed = PutTogether(Write(model, message, true, dice, one_in));
      REQUIRE(Comparable(streamed["content"]) == expected);
      json whole = json::parse(Write(model, message, false, dice, one_in));
      if (expected.empty()) {
        CHECK(whole["content"] == json::parse(R"([{"type":"text","text":""}])"));
      } else {
        REQUIRE(Comparable(whole["content"]) == expected);
      }
      CHECK(whole["stop_reason"] == streamed["stop_reason"]);
    }
  }
}

}  // namespace
}  // namespace tandem
