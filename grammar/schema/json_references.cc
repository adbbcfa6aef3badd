#include "grammar/schema/json_references.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/strings.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// As xgrammar looks it up.
const Json* FindByPlainNames(const Json& root, std::string_view ref) {
  const Json* place = &root;
  for (const std::string_view name : Split(ref.substr(1), '/')) {
    if (name.empty()) continue;
    const auto found = place->is_object() ? place->find(std::string(name)) : place->end();
    if (found == place->end()) return nullptr;
    place = &*found;
  }
  return place;
}

// Calls visit(&ref) for each reference that is a text.
template <class Schema, class Visit>
void ForEachReference(Schema* schema, const Visit& visit) {
  if (!schema->is_structured()) return;
  for (auto it = schema->begin(); it != schema->end(); ++it) {
    if (schema->is_object() && IsData(it.key())) continue;
    const bool is_ref = schema->is_object() && it.key() == "$ref" && it->is_string();
    if (is_ref) {
      visit(&*it);
    } else {
      ForEachReference(&*it, visit);
    }
  }
}

}  // namespace

bool IsData(std::string_view keyword) {
  constexpr std::string_view kData[] = {"const", "enum", "default", "examples"};
  return std::ranges::find(kData, keyword) != std::end(kData);
}

const Json* FindTarget(const Json& root, const std::string& ref) {
  if (!ref.starts_with('#')) return nullptr;
  try {
    const Json::json_pointer place(PercentDecode(std::string_view(ref).substr(1)));
    return root.contains(place) ? &root.at(place) : nullptr;
  } catch (const Json::exception&) {
    return nullptr;
  }
}

bool RefersOnlyTo(std::string_view place, std::string_view other_place, const Json& schema) {
  bool does = true;
  ForEachReference(&schema, [&](const Json* ref) {
    const auto& text = ref->get_ref<const std::string&>();
    does &= text.starts_with(place) || text.starts_with(other_place);
  });
  return does;
}

void MoveReferences(const std::string& place, Json* schema) {
  ForEachReference(schema, [&](Json* ref) {
    const auto& text = ref->get_ref<const std::string&>();
    if (text.starts_with('#')) *ref = place + text.substr(1);
  });
}

bool GiveTargetsNames(Json* root) {
  if (!root->is_object()) return false;
  const auto own = root->find("$defs");
  if (own != root->end() && !own->is_object()) return false;
  std::map<std::string, std::string> names;  // by reference
  int num_names = 0;
  ForEachReference(root, [&](Json* ref) {
    const std::string text = ref->get<std::string>();
    const Json* const target = FindTarget(*root, text);
    if (target == nullptr || target == FindByPlainNames(*root, text)) return;
    std::string& name = names[text];
    while (name.empty()) {
      const std::string next = "target_" + std::to_string(num_names++);
      if (own == root->end() || !own->contains(next)) name = next;
    }
    *ref = "#/$defs/" + name;
  });
  if (names.empty()) return false;
  Json copies = Json::object();
  for (const auto& [ref, name] : names) copies[name] = *FindTarget(*root, ref);
  (*root)["$defs"].update(copies);
  return true;
}

}  // namespace tandem
