#include "frontend/processing/chat_constraint.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "frontend/parsers/tool_grammar.h"

namespace tandem {
namespace {

bool BeginsWithReasoning(const MessageFormat& format) {
  if (format.reasoning == nullptr || format.is_harmony) return false;
  if (format.start == ReasoningStart::kUnknown) {
    return format.reasoning->start != ReasoningFormat::Start::kContent;
  }
  return format.start == ReasoningStart::kReasoning;
}

// Whether a call ends a text that may begin with reasoning: the engine sees its mark.
bool CallsEndReasoning(const MessageFormat& format, const ReasoningTokens& tokens) {
  if (format.reasoning == nullptr || format.tool_parser == nullptr) return false;
  const ToolTags* const tags = format.tool_parser->tags;
  return tags != nullptr && tokens.marks.tool_call.size() == 1 &&
         tags->trigger.starts_with(format.reasoning->tool_marker);
}

// Whether the constraint begins after the reasoning. A constraint of the whole text leaves out
// reasoning that nobody sees; free text before calls would only show it.
bool ComesAfterReasoning(const MessagePlan& plan, const ToolGrammar& grammar,
                         const ReasoningTokens& tokens) {
  // An end that the engine could overlook must not keep the constraint away for ever.
  if (!tokens.ends_with_one_token) return false;
  if (grammar.allows_text && plan.format.start == ReasoningStart::kByText) {
    return CallsEndReasoning(plan.format, tokens);
  }
  if (!BeginsWithReasoning(plan.format)) return false;
  return plan.include_reasoning || grammar.allows_text;
}

// Whether a constraint that holds from the first token on leaves room for reasoning all the same:
// in free text that may have its end marker.
bool MayReason(const MessageFormat& format, const ToolGrammar& grammar) {
  if (!grammar.allows_text || format.tool_parser == nullptr) return false;
  const ToolTags* const tags = format.tool_parser->tags;
  const std::string_view end = format.reasoning->end;
  return tags != nullptr && (end.empty() || tags->excludes.find(end) == std::string_view::npos);
}

// A prompt that has opened the reasoning leaves no choice; else a marker that a constraint of the
// client's own allows may still begin one.
void StartWithoutReasoning(MessageFormat* format) {
  format->start = format->start == ReasoningStart::kReasoning ? ReasoningStart::kContent
                                                              : ReasoningStart::kByText;
}

}  // namespace

StatusOr<ChatConstraint> ConstrainChat(const ParserConfig& parsers, const ReasoningTokens& tokens,
                                       MessagePlan* plan, ChatRequest* request) {
  ASSIGN_OR_RETURN(const wire::Rare<wire::StructuredOutputs> own, StructuredOutputsOf(*request));
  ToolGrammarInput in;
  if (!request->tools.is_null()) in.tools = &*request->tools;
  if (plan != nullptr) {
    in.choice = plan->format.choice;
    in.named_tool = plan->format.named_tool;
  } else {
    in.choice = MessageFormat::Choice::kNone;
  }
  in.parallel_calls = request->parallel_tool_calls;
  in.strict_level = parsers.strict_level;
  in.parser = parsers.tool_parser;
  in.is_harmony = parsers.is_harmony;
  if (own) in.own = ConstraintJson(*own);
  const Json own_json = in.own;
  ASSIGN_OR_RETURN(const ToolGrammar grammar, MakeToolGrammar(in));

  ChatConstraint constraint;
  constraint.warning = grammar.warning;
  if (grammar.structured_outputs.is_null()) return constraint;
  if (grammar.structured_outputs != own_json) {
    wire::StructuredOutputs whole = own ? *own : wire::StructuredOutputs();
    RETURN_IF_ERROR(SetConstraint(grammar.structured_outputs, &whole));
    constraint.has_calls = !request->tools.is_null();
    if (constraint.has_calls) constraint.tool_tag = whole.structural_tag.value_or("");
    request->structured_outputs = std::move(whole);
    request->response_format.reset();
    request->guided.reset();
  }
  if (parsers.reasoning != nullptr || parsers.is_harmony) {
    const bool waits = plan != nullptr && ComesAfterReasoning(*plan, grammar, tokens);
    constraint.reasoning_ended = !waits;
    if (!waits && plan != nullptr && BeginsWithReasoning(plan->format) &&
        !MayReason(plan->format, grammar)) {
      StartWithoutReasoning(&plan->format);
    }
  }
  return constraint;
}

}  // namespace tandem
