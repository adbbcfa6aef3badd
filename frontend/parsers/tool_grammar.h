#pragma once

// The grammar that a request with tools needs, by its tool_choice, the strict flags of its tools
// and the parser's format: a structural tag, a JSON schema, or none. Pure; any thread.

#include <nlohmann/json.hpp>
#include <string_view>

#include "common/status.h"
#include "frontend/parsers/message_parser.h"

namespace tandem {

// NOLINTNEXTLINE(bugprone-exception-escape): ordered_json's move may throw, but is declared
// noexcept.
struct ToolGrammarInput {
  const nlohmann::ordered_json* tools = nullptr;  // the request's array; null: none
  MessageFormat::Choice choice = MessageFormat::Choice::kNone;
  std::string_view named_tool = {};
  bool parallel_calls = true;
  StrictLevel strict_level = StrictLevel::kAuto;  // the server's
  const ToolParserRow* parser = nullptr;          // null: none; then choice is kNone
  bool is_harmony = false;
  // What the request itself wants its content to be, with one of the keys of the API's
  // structured_outputs: {"json": schema}, {"regex": pattern} …; null: anything.
  nlohmann::ordered_json own = nullptr;
};

// NOLINTNEXTLINE(bugprone-exception-escape): likewise.
struct ToolGrammar {
  nlohmann::ordered_json structured_outputs = nullptr;  // as own above; null: none
  std::string_view warning = {};  // a part of the request has no effect; empty: none
  bool allows_text = false;       // free text may come before what is held
};

// INVALID_ARGUMENT.
Status InvalidSchemaOf(std::string_view function, std::string_view reason);

// INVALID_ARGUMENT: parameters that calls are held to cannot be enforced.
StatusOr<ToolGrammar> MakeToolGrammar(const ToolGrammarInput& in);

}  // namespace tandem
