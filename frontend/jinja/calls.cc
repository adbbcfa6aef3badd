// The Interpreter's calls, attributes and items: what an object can do and contains.

#include <algorithm>
#include <utility>

#include "frontend/jinja/builtins.h"
#include "frontend/jinja/interpreter.h"
#include "frontend/jinja/text.h"

namespace tandem::jinja {
namespace {

Status TypeError(std::string message) { return InvalidArgumentError(std::move(message)); }

}  // namespace

StatusOr<Value> Interpreter::CallFilter(std::string_view name, const Value& input,
                                        const Arguments& args) {
  const Function filter = FindFilter(name);
  if (filter == nullptr) return TypeError("No filter named '" + std::string(name) + "'.");
  RETURN_IF_ERROR(CountSteps(input.IsString() ? static_cast<int64_t>(input.text.size) / 64 : 1));
  return filter(*this, input, args);
}

StatusOr<bool> Interpreter::CallTest(std::string_view name, const Value& input,
                                     const Arguments& args) {
  const Function test = FindTest(name);
  if (test == nullptr) return TypeError("No test named '" + std::string(name) + "'.");
  RETURN_IF_ERROR(CountSteps(1));
  ASSIGN_OR_RETURN(const Value holds, test(*this, input, args));
  return IsTrue(holds);
}

StatusOr<Value> Interpreter::Call(const Value& callee, const Arguments& args) {
  const Level level(&depth_);
  RETURN_IF_ERROR(CountSteps(1));
  switch (callee.kind) {
    case Kind::kCallable:
      if (callee.callable->self.IsString()) {
        RETURN_IF_ERROR(CountSteps(static_cast<int64_t>(callee.callable->self.text.size) / 64));
      }
      return callee.callable->function(*this, callee.callable->self, args);
    case Kind::kMacro:
      return CallMacro(*callee.macro, args);
    case Kind::kLoop:
      return CallLoop(*callee.loop, args);
    case Kind::kUndefined:
      return TypeError(*callee.message);
    default:
      return TypeError("'" + std::string(TypeName(callee)) + "' object is not callable");
  }
}

StatusOr<Value> Interpreter::CallMacro(const Macro& macro, const Arguments& args) {
  const Stmt& definition = *macro.definition;
  const auto& parameters = definition.parameters;
  const std::string who = "macro '" + definition.text + "'";
  if (args.positional.size() > parameters.size() && !definition.uses_varargs) {
    return TypeError(who + " takes not more than " + std::to_string(parameters.size()) +
                     " argument(s)");
  }
  Scope* scope = NewScope(macro.scope);
  for (size_t i = 0; i < std::min(parameters.size(), args.positional.size()); ++i) {
    scope->Set(parameters[i].name, args.positional[i]);
  }
  Value caller = heap_.Undefined("No caller defined");
  Dict rest;
  for (const auto& [name, value] : args.named) {
    const std::string_view wanted = name;
    const auto parameter = std::find_if(parameters.begin(), parameters.end(),
                                        [&](const Parameter& p) { return p.name == wanted; });
    if (parameter != parameters.end()) {
      if (static_cast<size_t>(parameter - parameters.begin()) < args.positional.size()) {
        return TypeError(who + " got two values for argument '" + parameter->name + "'");
      }
      scope->Set(parameter->name, value);
    } else if (name == "caller" && definition.uses_caller) {
      caller = value;
    } else if (definition.uses_kwargs) {
      rest.Set(Text(name), value);
    } else {
      return TypeError(who + " takes no keyword argument '" + std::string(name) + "'");
    }
  }
  for (const Parameter& parameter : parameters) {
    const bool given =
        std::any_of(scope->names.begin(), scope->names.end(),
                    [&](const auto& entry) { return entry.first == parameter.name; });
    if (given) continue;
    Value value = heap_.Undefined("parameter '" + parameter.name + "' was not provided");
    if (parameter.default_value != nullptr) {
      ASSIGN_OR_RETURN(value, Eval(*parameter.default_value, *scope));
    }
    scope->Set(parameter.name, value);
  }
  if (definition.uses_varargs) {
    std::vector<Value> varargs;
    if (args.positional.size() > parameters.size()) {
      varargs.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(parameters.size()),
                     args.positional.end());
    }
    scope->Set("varargs", heap_.NewSequence(Kind::kTuple, std::move(varargs)));
  }
  if (definition.uses_kwargs) scope->Set("kwargs", heap_.NewDict(std::move(rest)));
  // Inside a call block `caller` is that of the macro around it.
  if (definition.uses_caller && definition.kind == StmtKind::kMacro) scope->Set("caller", caller);
  std::string text;
  RETURN_IF_ERROR(ExecBody(definition.body, scope, &text).status());
  return String(std::move(text));
}

StatusOr<Value> Interpreter::CallLoop(const Loop& loop, const Arguments& args) {
  if (!loop.statement->recursive) {
    return TypeError("the loop must have the 'recursive' marker to be called");
  }
  if (args.positional.size() != 1 || !args.named.empty()) {
    return TypeError("loop() takes one argument");
  }
  std::string text;
  RETURN_IF_ERROR(
      ExecFor(*loop.statement, loop.scope, args.positional[0], loop.depth + 1, &text).status());
  return String(std::move(text));
}

Value Interpreter::Missing(const Value& object, const Value& name) {
  const std::string type = object.IsNone() ? "None" : std::string(TypeName(object)) + " object";
  if (name.IsString()) {
    return heap_.Undefined("'" + type + "' has no attribute '" + std::string(name.View()) + "'");
  }
  return heap_.Undefined(type + " has no element " + ToText(name));
}

namespace {

StatusOr<Value> LoopCycle(Interpreter&, const Value& self, const Arguments& args) {
  if (args.positional.empty()) return TypeError("no items for cycling given");
  return args.positional[self.loop->index % args.positional.size()];
}

StatusOr<Value> LoopChanged(Interpreter& interpreter, const Value& self, const Arguments& args) {
  const Value now = interpreter.heap().NewSequence(Kind::kTuple, args.positional);
  const bool changed = !self.loop->last_changed.IsGiven() || !IsEqual(self.loop->last_changed, now);
  self.loop->last_changed = now;
  return Bool(changed);
}

StatusOr<Value> CyclerNext(Interpreter&, const Value& self, const Arguments&) {
  Sequence& sequence = *self.sequence;
  const Value value = sequence.items[sequence.next];
  sequence.next = (sequence.next + 1) % sequence.items.size();
  return value;
}

StatusOr<Value> CyclerReset(Interpreter&, const Value& self, const Arguments&) {
  self.sequence->next = 0;
  return None();
}

}  // namespace

Value Interpreter::LoopAttr(const Value& object, std::string_view name) {
  const Loop& loop = *object.loop;
  const auto index = static_cast<int64_t>(loop.index);
  const auto size = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Integer(index + 1);
  if (name == "index0") return Integer(index);
  if (name == "revindex") return Integer(size - index);
  if (name == "revindex0") return Integer(size - index - 1);
  if (name == "first") return Bool(index == 0);
  if (name == "last") return Bool(index + 1 == size);
  if (name == "length") return Integer(size);
  if (name == "depth") return Integer(loop.depth + 1);
  if (name == "depth0") return Integer(loop.depth);
  if (name == "previtem") {
    return index > 0 ? loop.items[index - 1] : heap_.Undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < size ? loop.items[index + 1] : heap_.Undefined("there is no next item");
  }
  if (name == "cycle") return heap_.NewCallable("cycle", LoopCycle, object);
  if (name == "changed") return heap_.NewCallable("changed", LoopChanged, object);
  return Missing(object, Text(name));
}

// As Python's getattr; nullopt when there is no such attribute.
std::optional<Value> Interpreter::Attribute(const Value& object, std::string_view name) {
  const bool dunder = name.size() > 4 && name.starts_with("__") && name.ends_with("__");
  if (dunder || IsMutatingMethod(object, name)) {
    return heap_.Undefined("access to attribute '" + std::string(name) + "' of '" +
                           std::string(TypeName(object)) + "' object is unsafe.");
  }
  switch (object.kind) {
    case Kind::kNamespace: {
      const Value* value = object.dict->Find(name);
      if (value == nullptr) return std::nullopt;
      return *value;
    }
    case Kind::kLoop:
      return LoopAttr(object, name);
    case Kind::kCycler:
      if (name == "next") return heap_.NewCallable(name, CyclerNext, object);
      if (name == "reset") return heap_.NewCallable(name, CyclerReset, object);
      if (name == "current") return object.sequence->items[object.sequence->next];
      return std::nullopt;
    case Kind::kMacro:
      if (name == "name") return Text(object.macro->definition->text);
      return std::nullopt;
    case Kind::kTuple:
      // What groupby() yields has names for its two items.
      if (object.sequence->name == "group" && name == "grouper") return object.sequence->items[0];
      if (object.sequence->name == "group" && name == "list") return object.sequence->items[1];
      break;
    default:
      break;
  }
  const Function method = FindMethod(object, name);
  if (method == nullptr) return std::nullopt;
  return heap_.NewCallable(name, method, object);
}

// As Python's object[index]; nullopt where that raises.
std::optional<Value> Interpreter::Item(const Value& object, const Value& index) {
  if (object.IsDict()) {
    const Value* value =
        index.IsString() ? object.dict->Find(index.View()) : object.dict->Find(index);
    if (value == nullptr) return std::nullopt;
    return *value;
  }
  if (!index.IsInteger()) return std::nullopt;
  const bool indexable = object.IsString() || object.kind == Kind::kList ||
                         object.kind == Kind::kTuple || object.kind == Kind::kRange;
  if (!indexable) return std::nullopt;
  Int at = index.AsInt();
  if (!object.IsString()) {
    const auto& items = object.sequence->items;
    if (at < 0) at += static_cast<Int>(items.size());
    if (at < 0 || at >= static_cast<Int>(items.size())) return std::nullopt;
    return items[static_cast<size_t>(at)];
  }
  steps_left_ -= static_cast<int64_t>(object.text.size) / 16;
  const auto chars = SplitChars(object.View());
  if (at < 0) at += static_cast<Int>(chars.size());
  if (at < 0 || at >= static_cast<Int>(chars.size())) return std::nullopt;
  return Text(chars[static_cast<size_t>(at)]);
}

StatusOr<Value> Interpreter::GetAttr(const Value& object, std::string_view name) {
  if (object.IsUndefined()) return TypeError(*object.message);
  if (const auto value = Attribute(object, name); value.has_value()) return *value;
  if (const auto value = Item(object, Text(name)); value.has_value()) return *value;
  return Missing(object, Text(name));
}

StatusOr<Value> Interpreter::GetItem(const Value& object, const Value& index) {
  if (object.IsUndefined()) return TypeError(*object.message);
  if (const auto value = Item(object, index); value.has_value()) return *value;
  if (index.IsString()) {
    if (const auto value = Attribute(object, index.View()); value.has_value()) return *value;
  }
  return Missing(object, index);
}

StatusOr<std::vector<Value>> Interpreter::Items(const Value& value) {
  std::vector<Value> items;
  switch (value.kind) {
    case Kind::kUndefined:
      return items;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kView:
      items = value.sequence->items;
      break;
    case Kind::kGenerator:
      items.assign(
          value.sequence->items.begin() + static_cast<std::ptrdiff_t>(value.sequence->next),
          value.sequence->items.end());
      value.sequence->next = value.sequence->items.size();
      break;
    case Kind::kDict:
      for (const auto& item : value.dict->items) items.push_back(item.first);
      break;
    case Kind::kString:
      for (const std::string_view c : SplitChars(value.View())) items.push_back(Text(c));
      break;
    default:
      return TypeError("'" + std::string(TypeName(value)) + "' object is not iterable");
  }
  RETURN_IF_ERROR(CountSteps(static_cast<int64_t>(items.size()) / 4));
  return items;
}

}  // namespace tandem::jinja
