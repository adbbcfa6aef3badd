#pragma once

// Reads Prometheus text 0.0.4 strictly, by its grammar and not by our writer's habits; reports what
// is wrong with the first line that breaks a rule.

#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {

struct ParsedSample {
  std::string name;
  std::vector<std::pair<std::string, std::string>> labels;  // in order of appearance
  double value = 0;
  std::string value_text;
};

struct ParsedFamily {
  std::string type;
  std::string help;
  std::vector<ParsedSample> samples;
};

class ExpositionParser {
 public:
  // Empty when the text is well-formed.
  std::string Parse(std::string_view text) {
    if (text.empty() || text.back() != '\n') return "the text does not end with a line end";
    while (!text.empty()) {
      const size_t end = text.find('\n');
      std::string problem = Line(std::string(text.substr(0, end)));
      if (!problem.empty()) return problem + " in: " + std::string(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
    return "";
  }

  const std::map<std::string, ParsedFamily>& families() const { return families_; }

  // The sample with these labels (in any number), or a NaN.
  double Value(const std::string& name,
               const std::map<std::string, std::string>& labels = {}) const {
    for (const auto& [_, family] : families_) {
      for (const ParsedSample& sample : family.samples) {
        if (sample.name != name) continue;
        size_t found = 0;
        for (const auto& [key, value] : sample.labels) {
          const auto it = labels.find(key);
          found += it != labels.end() && it->second == value;
        }
        if (found == labels.size()) return sample.value;
      }
    }
    return std::strtod("nan", nullptr);
  }

 private:
  static bool IsName(std::string_view name, bool colons) {
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
    for (const char c : name) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
      if (!letter && !(c >= '0' && c <= '9') && !(colons && c == ':')) return false;
    }
    return true;
  }

  std::string Line(const std::string& line) {
    if (line.rfind("# HELP ", 0) == 0) return Comment(line.substr(7), &ParsedFamily::help);
    if (line.rfind("# TYPE ", 0) == 0) return Comment(line.substr(7), &ParsedFamily::type);
    if (line.empty() || line[0] == '#')
      return "a line that is neither a comment we know nor a sample";
    return Sample(line);
  }

  std::string Comment(const std::string& rest, std::string ParsedFamily::*field) {
    const size_t blank = rest.find(' ');
    const std::string name = rest.substr(0, blank);
    if (!IsName(name, true) || blank == std::string::npos) return "bad family name";
    if (name != current_) {
      if (families_.count(name) != 0) return "the family appears twice";
      current_ = name;
      families_[name];
    }
    ParsedFamily& family = families_[name];
    if (!(family.*field).empty()) return "HELP or TYPE twice";
    if (!family.samples.empty()) return "HELP or TYPE after the samples";
    family.*field = rest.substr(blank + 1);
    if (field == &ParsedFamily::type) {
      static const std::set<std::string> kTypes = {"counter", "gauge", "histogram", "summary"};
      if (kTypes.count(family.type) == 0) return "unknown type";
    }
    return "";
  }

  std::string Sample(const std::string& line) {
    ParsedSample sample;
    size_t at = line.find_first_of("{ ");
    if (at == std::string::npos) return "no value";
    sample.name = line.substr(0, at);
    if (!IsName(sample.name, true)) return "bad metric name";
    if (line[at] == '{') {
      ++at;
      while (line[at] != '}') {
        const size_t equals = line.find("=\"", at);
        if (equals == std::string::npos) return "bad labels";
        const std::string key = line.substr(at, equals - at);
        if (!IsName(key, false)) return "bad label name";
        std::string value;
        at = equals + 2;
        while (at < line.size() && line[at] != '"') {
          if (line[at] == '\\') {
            ++at;
            if (line[at] != 'n' && line[at] != '\\' && line[at] != '"') return "bad escape";
            value += line[at] == 'n' ? '\n' : line[at];
          } else {
            value += line[at];
          }
          ++at;
        }
        if (at >= line.size()) return "label without an end";
        if (!sample.labels.empty() && sample.labels.back().first >= key) {
          return "labels not in alphabetical order";
        }
        sample.labels.emplace_back(key, value);
        ++at;
        if (line[at] == ',') ++at;
      }
      ++at;
    }
    if (line[at] != ' ') return "no blank before the value";
    sample.value_text = line.substr(at + 1);
    char* end = nullptr;
    sample.value = std::strtod(sample.value_text.c_str(), &end);
    if (*end != '\0' || sample.value_text.empty()) return "bad value";

    std::string key = sample.name;
    for (const auto& [label, value] : sample.labels) key += '\1' + label + '\2' + value;
    if (!seen_.insert(key).second) return "the series appears twice";
    if (sample.name.rfind(current_, 0) != 0) return "a sample outside its family";
    const std::string suffix = sample.name.substr(current_.size());
    ParsedFamily& family = families_[current_];
    const bool is_histogram = family.type == "histogram";
    if (is_histogram ? suffix != "_bucket" && suffix != "_sum" && suffix != "_count"
                     : family.type != "summary" && !suffix.empty()) {
      return "a name its type does not have";
    }
    family.samples.push_back(std::move(sample));
    return "";
  }

  std::string current_;
  std::map<std::string, ParsedFamily> families_;
  std::set<std::string> seen_;
};

}  // namespace tandem
