// Functions that every template has: Jinja's own and those that transformers adds.

#include <array>
#include <ctime>

#include "frontend/jinja/builtins.h"
#include "frontend/jinja/interpreter.h"

namespace tandem::jinja {
namespace {

#define TANDEM_GLOBAL(name)                                       \
  StatusOr<Value> name([[maybe_unused]] Interpreter& interpreter, \
                       [[maybe_unused]] const Value& self, [[maybe_unused]] const Arguments& args)

constexpr int64_t kMaxRange = 100'000;  // of the sandbox

TANDEM_GLOBAL(Range) {
  ASSIGN_OR_RETURN(const auto bound, Bind("range", args, {"start", "stop", "step"}, 1));
  const bool one = !bound[1].IsGiven();
  ASSIGN_OR_RETURN(const int64_t start, ToIndex(one ? Value() : bound[0], "start", 0));
  ASSIGN_OR_RETURN(const int64_t stop, ToIndex(one ? bound[0] : bound[1], "stop", 0));
  ASSIGN_OR_RETURN(const int64_t step, ToIndex(bound[2], "step", 1));
  if (step == 0) return InvalidArgumentError("range() arg 3 must not be zero");
  const int64_t distance = step > 0 ? stop - start : start - stop;
  const int64_t stride = step > 0 ? step : -step;
  const int64_t size = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  if (size > kMaxRange) {
    return ResourceExhaustedError(
        "Range too big. The sandbox blocks ranges larger than "
        "MAX_RANGE (100000).");
  }
  RETURN_IF_ERROR(interpreter.CountSteps(size / 4));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) items.push_back(Integer(start + i * step));
  return interpreter.heap().NewSequence(Kind::kRange, std::move(items), "range");
}

// dict(...) and namespace(...): a mapping or pairs, then keywords.
StatusOr<Dict> ToDict(Interpreter& interpreter, const Arguments& args) {
  Dict dict;
  if (args.positional.size() > 1) {
    return InvalidArgumentError("dict expected at most 1 argument, got " +
                                std::to_string(args.positional.size()));
  }
  if (!args.positional.empty() && args.positional[0].IsDict()) {
    dict.items = args.positional[0].dict->items;
  } else if (!args.positional.empty()) {
    ASSIGN_OR_RETURN(const std::vector<Value> pairs, interpreter.Items(args.positional[0]));
    for (const Value& item : pairs) {
      ASSIGN_OR_RETURN(const std::vector<Value> pair, interpreter.Items(item));
      if (pair.size() != 2 || !IsHashable(pair[0])) {
        return InvalidArgumentError("dict() needs a mapping or pairs of a key and a value");
      }
      RETURN_IF_ERROR(interpreter.CountSteps(static_cast<int64_t>(dict.items.size()) / 8));
      dict.Set(pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : args.named) dict.Set(Text(name), value);
  return dict;
}

TANDEM_GLOBAL(NewDictGlobal) {
  ASSIGN_OR_RETURN(Dict dict, ToDict(interpreter, args));
  return interpreter.heap().NewDict(std::move(dict));
}

TANDEM_GLOBAL(NewNamespaceGlobal) {
  ASSIGN_OR_RETURN(Dict dict, ToDict(interpreter, args));
  return interpreter.heap().NewNamespace(std::move(dict));
}

TANDEM_GLOBAL(NewCycler) {
  if (args.positional.empty()) return InvalidArgumentError("at least one item has to be provided");
  return interpreter.heap().NewSequence(Kind::kCycler, args.positional);
}

// self: the cycler-like memory of a joiner; its separator is shown from the second call on.
StatusOr<Value> JoinerCall(Interpreter&, const Value& self, const Arguments&) {
  if (self.sequence->next++ == 0) return Text("");
  return self.sequence->items[0];
}

TANDEM_GLOBAL(NewJoiner) {
  ASSIGN_OR_RETURN(const auto bound, Bind("joiner", args, {"sep"}));
  const Value memory =
      interpreter.heap().NewSequence(Kind::kCycler, {bound[0].IsGiven() ? bound[0] : Text(", ")});
  return interpreter.heap().NewCallable("joiner", JoinerCall, memory);
}

TANDEM_GLOBAL(RaiseException) {
  ASSIGN_OR_RETURN(const auto bound, Bind("raise_exception", args, {"message"}, 1));
  ASSIGN_OR_RETURN(const std::string_view message, interpreter.Str(bound[0]));
  return Status(StatusCode::kAborted, std::string(message));
}

TANDEM_GLOBAL(StrftimeNow) {
  ASSIGN_OR_RETURN(const auto bound, Bind("strftime_now", args, {"format"}, 1));
  ASSIGN_OR_RETURN(const std::string_view format, ToString(bound[0], "format", ""));
  const auto now = static_cast<std::time_t>(interpreter.now_s());
  std::tm local = {};
  localtime_r(&now, &local);
  constexpr size_t kMaxFormat = 1024;
  if (format.size() > kMaxFormat) return InvalidArgumentError("strftime_now() format too long");
  // The blank distinguishes an empty result from one that did not fit.
  const std::string with_blank = std::string(format) + " ";
  std::string text(kMaxFormat * 16, '\0');
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  text.resize(std::strftime(text.data(), text.size(), with_blank.c_str(), &local));
#pragma GCC diagnostic pop
  if (text.empty()) return InvalidArgumentError("strftime_now() result too long");
  text.pop_back();
  return interpreter.String(std::move(text));
}

TANDEM_GLOBAL(NotHere) {
  return InvalidArgumentError("lipsum and self are not available in chat templates");
}

#undef TANDEM_GLOBAL

constexpr std::array<NamedFunction, 9> kGlobals = {{
    {"cycler", NewCycler},
    {"dict", NewDictGlobal},
    {"joiner", NewJoiner},
    {"lipsum", NotHere},
    {"namespace", NewNamespaceGlobal},
    {"raise_exception", RaiseException},
    {"range", Range},
    {"self", NotHere},
    {"strftime_now", StrftimeNow},
}};

}  // namespace

Function FindGlobal(std::string_view name) { return FindFunction(kGlobals, name); }

}  // namespace tandem::jinja
