#pragma once

// The reader of a body by its field table, for the files that define one. Each reads the fields of
// its rows, then checks the request as a whole. Pure functions; any thread.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "common/log.h"
#include "common/shorten.h"
#include "frontend/openai/generation_request.h"
#include "frontend/openai/parse.h"

namespace tandem {

// What the value must be if it is not, else empty.
using Complaint = std::string_view;

// Numbers and booleans may also come as each other and as texts (lax_values.h); such a value
// becomes what was read, for those that look at it next.
Complaint ReadValue(Json& value, bool* out);
Complaint ReadValue(Json& value, int64_t* out);
Complaint ReadValue(Json& value, double* out);
Complaint ReadValue(Json& value, std::string* out);

template <class T>
Complaint ReadValue(Json& value, std::vector<T>* out) {
  constexpr bool kStrings = std::is_same_v<T, std::string>;
  if (!value.is_array())
    return kStrings ? "must be a list of strings" : "must be a list of integers";
  out->resize(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    if (!ReadValue(value[i], &(*out)[i]).empty()) {
      return kStrings ? "must be a list of strings" : "must be a list of integers";
    }
  }
  return {};
}

template <class T>
Complaint ReadValue(Json& value, std::optional<T>* out) {
  return ReadValue(value, &out->emplace());
}

// The refusal of a value of which a part is outside the field's range; OK when none is.
Status CheckRange(std::string_view field, const Range& range, const Json& value);

// Whether the body lacks the field; a null counts as absent.
bool IsAbsent(const Json& body, std::string_view name);
// The error for a body of another type than object.
Status NotAnObject(const Json& body);

template <class T>
void ParseField(Json& value, const ApiField<T>& field, T* out, BodyErrors* errors) {
  if (std::holds_alternative<Ignored>(field.member)) return;
  if (const auto* retired = std::get_if<Retired>(&field.member)) {
    if constexpr (std::is_base_of_v<GenerationRequest, T>) {
      out->retired_fields.push_back({field.name, retired->instead});
    }
    return;
  }
  if (const auto* unsupported = std::get_if<Unsupported>(&field.member)) {
    if (value != Json::parse(unsupported->accepted, nullptr, false)) {
      errors->AddValue(
          InvalidArgumentError("`" + std::string(field.name) + "` is not supported by this server")
              .WithParam(std::string(field.name)));
    }
    return;
  }
  const std::string location = "body." + std::string(field.name);
  if (const auto* parser = std::get_if<JsonParser<T>>(&field.member)) {
    const Status status = (*parser)(value, out);
    if (status.ok()) return;
    const std::string& param = status.param();
    if (param.empty() || param.starts_with("body.")) {
      errors->AddForm(param.empty() ? location : param, status.message());
    } else {
      errors->AddValue(status);
    }
    return;
  }
  const Complaint complaint = std::visit(
      [&](auto member) -> Complaint {
        if constexpr (std::is_member_object_pointer_v<decltype(member)>) {
          return ReadValue(value, &(out->*member));
        } else {
          return {};
        }
      },
      field.member);
  if (!complaint.empty()) {
    errors->AddForm(location, std::string(complaint) + ", got " + std::string(JsonTypeName(value)));
    return;
  }
  const Status status = CheckRange(field.name, field.range, value);
  if (!status.ok()) errors->AddValue(status);
}

// Fills *out with the fields of the body that have a row. Parsers may move parts out of the body.
template <class T>
void ParseFields(Json& body, std::span<const ApiField<T>> fields, T* out, BodyErrors* errors) {
  for (auto it = body.begin(); it != body.end(); ++it) {
    if (it->is_null()) continue;
    for (const ApiField<T>& field : fields) {
      if (field.name == it.key()) {
        ParseField(*it, field, out, errors);
        break;
      }
    }
  }
}

// Names the fields without a row in the debug log.
template <class... Tables>
void LogUnknownFields(const Json& body, const Tables&... tables) {
  if (!LogEnabled(LogLevel::kDebug)) return;
  for (const auto& [name, value] : body.items()) {
    const auto has = [&key = name](const auto& table) {
      return std::any_of(std::begin(table), std::end(table),
                         [&key](const auto& field) { return field.name == key; });
    };
    if (!(has(tables) || ...)) {
      LOG_DEBUG << "unknown field ignored: " << DumpJson(Shorten(name));
    }
  }
}

}  // namespace tandem
