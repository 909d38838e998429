// Writes XML with pugixml; texts may contain any bytes.
#pragma once

#include <pugixml.hpp>
#include <sstream>
#include <string>
#include <string_view>

#include "reports/outputs/clean.h"

namespace halfmark::reports {

inline void set(pugi::xml_node node, const char* name, std::string_view value) {
  node.append_attribute(name).set_value(xml_characters(value).c_str());
}

inline void set_count(pugi::xml_node node, const char* name, size_t count) {
  node.append_attribute(name) = static_cast<unsigned long long>(count);
}

inline void set_text(pugi::xml_node node, std::string_view text) { node.text().set(xml_characters(text).c_str()); }

// <property name="..." value="..."/>, as in JUnit.
inline void add_property(pugi::xml_node properties, const char* name, std::string_view value) {
  pugi::xml_node node = properties.append_child("property");
  set(node, "name", name);
  set(node, "value", value);
}

// A document with its declaration and this root element.
inline pugi::xml_node begin_document(pugi::xml_document& document, const char* root) {
  pugi::xml_node declaration = document.append_child(pugi::node_declaration);
  declaration.append_attribute("version") = "1.0";
  declaration.append_attribute("encoding") = "UTF-8";
  return document.append_child(root);
}

inline std::string text_of(const pugi::xml_document& document) {
  std::ostringstream text;
  document.save(text, "  ");
  return text.str();
}

}  // namespace halfmark::reports
