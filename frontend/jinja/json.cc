// Values as Python's json.dumps writes them.

#include <algorithm>
#include <cmath>

#include "frontend/jinja/text.h"
#include "frontend/jinja/value.h"

namespace tandem::jinja {
namespace {

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  Status Write(const Value& value) {
    switch (value.kind) {
      case Kind::kNone:
        out_ += "null";
        return OkStatus();
      case Kind::kBool:
        out_ += value.boolean ? "true" : "false";
        return OkStatus();
      case Kind::kInt:
        out_ += FormatInt(value.integer);
        return OkStatus();
      case Kind::kFloat:
        out_ += FloatText(value.real);
        return OkStatus();
      case Kind::kString:
        AppendJsonString(value.View(), style_.ensure_ascii, &out_);
        return OkStatus();
      case Kind::kList:
      case Kind::kTuple:
        return WriteList(value.sequence->items);
      case Kind::kDict:
        return WriteDict(*value.dict);
      default:
        return InvalidArgumentError("Object of type " + std::string(TypeName(value)) +
                                    " is not JSON serializable");
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  static std::string FloatText(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FormatFloat(value);
  }

  void NewLine() {
    if (!style_.indented) return;
    out_ += '\n';
    for (int i = 0; i < depth_; ++i) out_ += style_.indent;
  }

  Status WriteList(const std::vector<Value>& items) {
    if (items.empty()) {
      out_ += "[]";
      return OkStatus();
    }
    out_ += '[';
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      NewLine();
      RETURN_IF_ERROR(Write(items[i]));
    }
    --depth_;
    NewLine();
    out_ += ']';
    return OkStatus();
  }

  static StatusOr<std::string> KeyText(const Value& key) {
    switch (key.kind) {
      case Kind::kString:
        return std::string(key.View());
      case Kind::kNone:
        return std::string("null");
      case Kind::kBool:
        return std::string(key.boolean ? "true" : "false");
      case Kind::kInt:
        return FormatInt(key.integer);
      case Kind::kFloat:
        return FloatText(key.real);
      default:
        return InvalidArgumentError("keys must be str, int, float, bool or None, not " +
                                    std::string(TypeName(key)));
    }
  }

  Status WriteDict(const Dict& dict) {
    if (dict.items.empty()) {
      out_ += "{}";
      return OkStatus();
    }
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys) {
      Status status;
      std::stable_sort(items.begin(), items.end(), [&](const auto* a, const auto* b) {
        const auto order = Compare(a->first, b->first);
        if (!order.ok()) status = order.status();
        return order.ok() && *order < 0;
      });
      RETURN_IF_ERROR(status);
    }
    out_ += '{';
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      NewLine();
      ASSIGN_OR_RETURN(const std::string key, KeyText(items[i]->first));
      AppendJsonString(key, style_.ensure_ascii, &out_);
      out_ += style_.key_separator;
      RETURN_IF_ERROR(Write(items[i]->second));
    }
    --depth_;
    NewLine();
    out_ += '}';
    return OkStatus();
  }

  const JsonStyle& style_;
  std::string out_;
  int depth_ = 0;
};

}  // namespace

StatusOr<std::string> ToJson(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  RETURN_IF_ERROR(writer.Write(value));
  return writer.Take();
}

}  // namespace tandem::jinja
