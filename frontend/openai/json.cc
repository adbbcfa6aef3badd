#include "frontend/openai/json.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/shorten.h"
#include "frontend/openai/python_json.h"

namespace tandem {
namespace {

// Numbers that JSON has no form for, written as ones that nobody writes. All three read as zero.
constexpr std::string_view kNan = "0e901";
constexpr std::string_view kInfinity = "0e902";
constexpr std::string_view kMinusInfinity = "-0e902";

std::string_view PlainNumber(std::string_view word) {
  if (word == "NaN") return kNan;
  if (word == "Infinity") return kInfinity;
  if (word == "-Infinity") return kMinusInfinity;
  if (word == kNan || word == kInfinity || word == kMinusInfinity) return "0e0";
  const bool is_real = word.find_first_of(".eE") != word.npos &&
                       word.find_first_not_of("0123456789+-.eE") == word.npos;
  if (!is_real) return word;
  const double value = std::strtod(std::string(word).c_str(), nullptr);
  if (!std::isinf(value)) return word;
  return value > 0 ? kInfinity : kMinusInfinity;
}

// The text with each number outside of strings in a form that the JSON library reads.
std::string WithPlainNumbers(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (text[i] == '"') {
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
      plain += text.substr(i, end - i);
    } else if (end = text.find_first_of("\",:[]{} \t\r\n", i); end == i) {
      plain += text[end++];
    } else {
      end = std::min(end, text.size());
      plain += PlainNumber(text.substr(i, end - i));
    }
    i = end;
  }
  return plain;
}

// Builds the value as it reads, so that the limits hold before memory is spent. Pointers to the
// open ancestors stay valid: a container grows only while none of its children is open.
class LimitedReader {
 public:
  // The numbers of the text: JSON's, also Python's, or those of WithPlainNumbers.
  enum class Numbers { kJson, kPython, kPlain };

  explicit LimitedReader(const JsonLimits& limits, Numbers numbers = Numbers::kJson)
      : limits_(limits), numbers_(numbers) {}

  bool null() { return Add(nullptr) != nullptr; }
  bool boolean(bool value) { return Add(value) != nullptr; }
  bool number_integer(int64_t value) { return Add(value) != nullptr; }
  bool number_unsigned(uint64_t value) { return Add(value) != nullptr; }
  bool number_float(double value, const std::string& text) {
    if (numbers_ == Numbers::kPlain) {
      constexpr double kInfinite = std::numeric_limits<double>::infinity();
      if (text == kNan) value = std::numeric_limits<double>::quiet_NaN();
      if (text == kInfinity) value = kInfinite;
      if (text == kMinusInfinity) value = -kInfinite;
    }
    if (numbers_ != Numbers::kJson && text.find_first_of(".eE") == text.npos) {
      return Add(Json::binary({text.begin(), text.end()})) != nullptr;
    }
    return Add(value) != nullptr;
  }
  bool string(std::string& value) { return Add(std::move(value)) != nullptr; }
  bool binary(Json::binary_t&) { return Refuse("binary values are not JSON"); }
  bool start_object(size_t) { return Open(Json::object()); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }

  bool key(std::string& name) {
    Level& level = open_.back();
    Json::object_t& object = *level.value->get_ptr<Json::object_t*>();
    if (object.size() >= limits_.max_object_keys) {
      return Refuse("an object has more than " + std::to_string(limits_.max_object_keys) + " keys");
    }
    level.place = PlaceOf(level, object, name);
    if (level.place < object.size() && !limits_.takes_repeated_keys) {
      return Refuse("an object has the same key twice: " + DumpJson(Shorten(name)));
    }
    level.key = std::move(name);
    return true;
  }

  template <class Exception>
  bool parse_error(size_t position, const std::string&, const Exception& error) {
    // 101 is syntax (bad UTF-8 and surrogates too), 406 a number beyond a double.
    refusal_ = (error.id == 406 ? "a number is out of range at byte " : "invalid JSON at byte ") +
               std::to_string(position) + std::string(CauseIn(error.what()));
    return false;
  }

  const std::string& refusal() const { return refusal_; }
  Json& root() { return root_; }

 private:
  struct Level {
    Json* value;
    std::string key;   // of the value that comes next
    size_t place = 0;  // of that key among the object's; their number: it is new
    std::unordered_map<std::string, size_t> places;  // filled once the object has many keys
  };
  static constexpr size_t kFewKeys = 16;

  // What is wrong in a string, where programs that cut texts may have caused it.
  static std::string_view CauseIn(std::string_view message) {
    if (message.find("surrogate") != message.npos) {
      return ": a string has one half of a surrogate pair (\\ud800 to \\udfff) without the other";
    }
    if (message.find("ill-formed UTF-8") != message.npos) return ": a string is not UTF-8";
    if (message.find("control character") != message.npos) {
      return ": a string has a control character that is not escaped";
    }
    return "";
  }

  static size_t PlaceOf(Level& level, const Json::object_t& object, const std::string& name) {
    size_t place = 0;
    if (object.size() < kFewKeys) {
      for (const auto& [key, value] : object) {
        if (key == name) break;
        ++place;
      }
      return place;
    }
    if (level.places.empty()) {
      for (const auto& [key, value] : object) level.places.emplace(key, place++);
    }
    return level.places.emplace(name, object.size()).first->second;
  }

  bool Refuse(std::string why) {
    refusal_ = std::move(why);
    return false;
  }

  Json* Add(Json value) {
    if (++num_values_ > limits_.max_values) {
      Refuse("more than " + std::to_string(limits_.max_values) + " values");
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = open_.back();
    if (level.value->is_array()) {
      auto& array = *level.value->get_ptr<Json::array_t*>();
      array.push_back(std::move(value));
      return &array.back();
    }
    // The underlying vector's emplace_back: the map's own insertion would search for the key again.
    auto& object =
        static_cast<Json::object_t::Container&>(*level.value->get_ptr<Json::object_t*>());
    if (level.place < object.size()) {
      object[level.place].second = std::move(value);
    } else {
      object.emplace_back(std::move(level.key), std::move(value));
    }
    return &object[level.place].second;
  }

  bool Open(Json container) {
    if (static_cast<int>(open_.size()) >= limits_.max_depth) {
      return Refuse("nested deeper than " + std::to_string(limits_.max_depth) + " levels");
    }
    Json* added = Add(std::move(container));
    if (added == nullptr) return false;
    open_.push_back({added, {}, 0, {}});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  const Numbers numbers_;
  Json root_;
  std::vector<Level> open_;
  size_t num_values_ = 0;
  std::string refusal_;
};

}  // namespace

JsonDocument::JsonDocument() : value_(std::make_unique<Json>()) {}
JsonDocument::JsonDocument(Json value) : value_(std::make_unique<Json>(std::move(value))) {}
JsonDocument::JsonDocument(const JsonDocument& other)
    : value_(std::make_unique<Json>(*other.value_)) {}
JsonDocument::JsonDocument(JsonDocument&& other) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument other) noexcept {
  value_ = std::move(other.value_);
  return *this;
}
JsonDocument::~JsonDocument() = default;
bool JsonDocument::is_null() const { return value_ == nullptr || value_->is_null(); }

StatusOr<JsonDocument> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (text.empty()) return InvalidArgumentError("must be JSON, is empty");
  LimitedReader reader(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &reader)) {
    return InvalidArgumentError(reader.refusal());
  }
  return JsonDocument(std::move(reader.root()));
}

StatusOr<JsonDocument> ParsePythonJson(std::string_view text) {
  const JsonLimits limits = {.takes_repeated_keys = true};
  LimitedReader reader(limits, LimitedReader::Numbers::kPython);
  if (Json::sax_parse(text.begin(), text.end(), &reader)) {
    return JsonDocument(std::move(reader.root()));
  }
  LimitedReader second(limits, LimitedReader::Numbers::kPlain);
  const std::string plain = WithPlainNumbers(text);
  if (Json::sax_parse(plain.begin(), plain.end(), &second)) {
    return JsonDocument(std::move(second.root()));
  }
  return InvalidArgumentError(reader.refusal());
}

std::string DumpJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tandem
