#include "frontend/processing/chat_constraint.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "frontend/parsers/tool_grammar.h"

namespace tandem {
namespace {

// Whether the text after the prompt begins with reasoning that the constraint does not hold.
bool BeginsWithReasoning(const MessagePlan& plan) {
  const MessageFormat& format = plan.format;
  if (format.reasoning == nullptr || format.is_harmony || !plan.include_reasoning) return false;
  if (format.start == ReasoningStart::kUnknown) {
    return format.reasoning->start != ReasoningFormat::Start::kContent;
  }
  return format.start == ReasoningStart::kReasoning;
}

}  // namespace

StatusOr<ChatConstraint> ConstrainChat(const ParserConfig& parsers, const MessagePlan* plan,
                                       ChatRequest* request) {
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
  ASSIGN_OR_RETURN(const ToolGrammar grammar, MakeToolGrammar(std::move(in)));

  ChatConstraint constraint;
  constraint.warning = grammar.warning;
  if (grammar.structured_outputs.is_null()) return constraint;
  if (grammar.structured_outputs != own_json) {
    wire::StructuredOutputs whole = own ? *own : wire::StructuredOutputs();
    RETURN_IF_ERROR(SetConstraint(grammar.structured_outputs, &whole));
    request->structured_outputs = std::move(whole);
    request->response_format.reset();
    request->guided.reset();
    constraint.has_calls = !request->tools.is_null();
  }
  if (parsers.reasoning != nullptr || parsers.is_harmony) {
    constraint.reasoning_ended = plan == nullptr || !BeginsWithReasoning(*plan);
  }
  return constraint;
}

}  // namespace tandem
