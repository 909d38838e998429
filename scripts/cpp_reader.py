"""Reads C++ for the checks: the includes, the code without comments and literals, the types that a file defines.

A parser such as universal-ctags would see more of the language, but does not refuse what it misreads, and it would be one more
package on every machine that runs the tests. Our sources have one style, so this reader is strict instead: whatever it does not
understand is a fault of the file, with its line. It decides nothing by the value of a macro: every branch of #if is read.
"""

import re

INCLUDE_FORM = 'write includes as #include "folder/file.h"'
COMMENT = r"//[^\n]*|/\*(?s:.*?)\*/"
STRING = r'(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"'
RAW = r'(?:u8|[uUL])?R"(?P<mark>[^()\\\s"]{0,16})\((?s:.*?)\)(?P=mark)"'
CHAR = r"(?:u8|[uUL])?'(?:\\.|[^'\\\n])+'"
NUMBER = r"\.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z_]|[\w.])*"
# The frequent tokens first. A word before a quote may be the prefix of a literal.
TOKEN = re.compile(rf"""[ ]*(?:
    (?P<word>operator(?="")|[A-Za-z_]\w*(?![\w"']))
  | (?P<newline>\n)
  | (?P<plain>[(){{}};,&*=>\[\]])
  | (?P<comment>{COMMENT})
  | (?P<string>{STRING})
  | (?P<raw>{RAW})
  | (?P<char>{CHAR})
  | (?P<number>{NUMBER})
  | (?P<digraph>%:|<%|%>|:>|<:(?!:[^:>]))
  | (?P<symbol>::|->|<<|<=|[!#-&(-/:-@\[\]^`{{-~])
  | (?P<other>[A-Za-z_]\w*|[^\n ])
)""", re.VERBOSE | re.ASCII)
NO_CODE = re.compile(rf"(?=[/\"'uULR0-9])(?:(?P<skipped>{COMMENT}|{RAW}|{STRING}|{CHAR})|\b{NUMBER})", re.ASCII)
# Line ends and blanks that compilers and this reader see differently, and characters that change what a reader of the text sees.
HIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffd]")
TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")
INCLUDE = re.compile(r'#include (?:"([^"\n]+)"|<([^>\n]+)>)(?: +//.*)?')
PRAGMA = re.compile(r"#pragma (?:once|unroll|(?:GCC|clang) (?:unroll|diagnostic))\b")
PRAGMA_OPERATOR = re.compile(r'\b_Pragma\s*\((?!"GCC (?:unroll|ivdep)\b)')
ASKS_FOR_OURS = re.compile(r'__has_include\s*\(\s*"')
DIRECTIVES = {"define", "undef", "include", "if", "ifdef", "ifndef", "elif", "else", "endif", "error", "pragma"}
MACRO_NAME = re.compile(r"(?:HM|HALFMARK|EXPECT|ASSERT)_[A-Z0-9_]+")
LITERALS = ("raw", "string", "char")
NOT_IN_MACROS = {"struct", "class", "enum", "union", "namespace", "using", "typedef"}
CLASS_KEYS = ("struct", "class", "enum", "union")
CLOSING = {"(": ")", "[": "]", "{": "}"}
CLOSERS = set(CLOSING.values())


class Source:
    """What a text has. Lines count from 1."""

    def __init__(self):
        self.includes = []  # (line, '"' or '<', header)
        self.faults = []    # (line, what is wrong)
        self.tokens = []    # (text, line, branches) of the code outside directives; a literal is '""'


def read(text):
    source = Source()
    for pattern, what in ((HIDDEN, "a control or invisible character, or not UTF-8"), (TRIGRAPH, "a trigraph"),
                          (PRAGMA_OPERATOR, "a pragma that scripts/cpp_reader.py does not allow")):
        for found in pattern.finditer(text):
            source.faults.append((text.count("\n", 0, found.start()) + 1, what))
    items = split(text, source)
    conditions = Conditions()
    first = True  # nothing but comments since the start of the line
    at = 0
    while at < len(items):
        kind, token, start, line = items[at]
        if kind == "word":
            source.tokens.append((token, line, conditions.branches))
            first = False
            at += 1
            continue
        end = at + 1
        if kind == "symbol" and token == "#" and first:
            while end < len(items) and (items[end][0] != "newline" or items[end - 1][1] == "\\"):
                end += 1
            last = items[end][2] if end < len(items) else len(text)
            if at and items[at - 1][0] == "comment":
                source.faults.append((line, f"a directive after a comment: {INCLUDE_FORM}"))
            directive(source, conditions, text[start:last], items[at + 1:end], line)
        elif kind == "other":
            source.faults.append((line, f"{token} outside a literal: a stray character, an unclosed literal, or an unknown prefix of one"))
        elif kind == "digraph":
            source.faults.append((line, f"the digraph {token}: write the character itself"))
        elif kind not in ("newline", "comment"):
            conditions.depth += (token == "{") - (token == "}")
            source.tokens.append(('""' if kind in LITERALS else token, line, conditions.branches))
        first = kind == "newline" or (first and kind == "comment")
        at = end
    if conditions.open:
        source.faults.append((text.count("\n") + 1, "#if without #endif"))
    return source


def code_of(text):
    """The text with blanks for comments and literals; directives are kept."""
    return NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]) if found["skipped"] else found[0], text)


def includes_of(text, code):
    """The same list as Source.includes, for a text without faults, but faster. code: the result of code_of(text)."""
    return [(line, '"' if found[1] else "<", found[1] or found[2])
            for line, (kept, whole) in enumerate(zip(code.split("\n"), text.split("\n")), 1)
            if kept.lstrip(" ").startswith("#include") and (found := INCLUDE.fullmatch(whole.lstrip(" ")))]


def split(text, source):
    """-> [(kind, text, position, line)]"""
    items, line = [], 1
    for found in TOKEN.finditer(text):
        kind = found.lastgroup
        token, start = found[kind], found.start(kind)
        items.append((kind, token, start, line))
        if kind == "newline":
            line += 1
        elif kind == "comment" or kind in LITERALS:
            if token.startswith("//") and token.rstrip().endswith("\\"):
                source.faults.append((line, "a comment that ends in a backslash goes on in the next line"))
            line += token.count("\n")
    return items


class Conditions:
    """Which branch of which #if the reader is in. Branches of one #if exclude each other."""

    def __init__(self):
        self.open = []      # of each open #if: [its number, its branch, the depth of braces at its start]
        self.branches = ()
        self.depth = self.count = 0

    def enter(self, name):
        """-> what is wrong, or nothing."""
        wrong = None
        if name in ("if", "ifdef", "ifndef"):
            self.count += 1
            self.open.append([self.count, 0, self.depth])
        elif not self.open:
            return f"#{name} without #if"
        else:
            if self.depth != self.open[-1][2]:
                wrong = f"#{name}: each branch of an #if must close the braces that it opens"
            self.open[-1][1] += 1
            if name == "endif":
                self.open.pop()
        self.branches = tuple((number, branch) for number, branch, _ in self.open)
        return wrong


def directive(source, conditions, whole, items, line):
    """Judges one directive: its text, and its tokens after the #."""
    words = [token for kind, token, _, _ in items if kind not in ("comment", "newline")]
    name = words[0] if words else ""
    wrong = None
    if name not in DIRECTIVES:
        wrong = f"#{name} is not a directive that scripts/cpp_reader.py allows; {INCLUDE_FORM}"
    elif name == "include":
        if found := INCLUDE.fullmatch(whole):
            source.includes.append((line, '"' if found[1] else "<", found[1] or found[2]))
        else:
            wrong = f"{' '.join(whole.split())}: {INCLUDE_FORM}"
    elif name == "pragma":
        if not PRAGMA.match(whole):
            wrong = f"{whole.strip()}: a pragma that scripts/cpp_reader.py does not allow"
    elif name in ("define", "undef"):
        if len(words) < 2 or not MACRO_NAME.fullmatch(words[1]):
            wrong = f"macro {' '.join(words[1:2])}: name it HM_..., so that it replaces no other name"
        elif bad := NOT_IN_MACROS.intersection(words):
            wrong = f"'{sorted(bad)[0]}' in a macro: the checks cannot see what it defines or uses"
    elif name != "error":
        wrong = conditions.enter(name)
        if ASKS_FOR_OURS.search(whole):
            wrong = "__has_include of a header of ours: the contents of a file must not depend on which other files exist"
    if wrong:
        source.faults.append((line, wrong))
    for number, (kind, token, start, at) in enumerate(items):
        following = items[number + 1][0] if number + 1 < len(items) else ""
        if token == "\\" and not (name == "define" and following == "newline" and items[number - 1][2] + len(items[number - 1][1]) < start):
            source.faults.append((at, f"a continued line: only in #define, after a blank; {INCLUDE_FORM}"))
        elif kind == "other" and token != "\\":
            source.faults.append((at, f"{token} outside a literal: a stray character, an unclosed literal, or an unknown prefix of one"))
        elif kind == "digraph":
            source.faults.append((at, f"the digraph {token}: write the character itself"))


class Types:
    """The types that the tokens of a file define outside of classes and functions."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.found = []     # (full name, line, branches, what `using a::B;` names); names in unnamed namespaces are left out
        self.opened = []    # (full name, line) of each named namespace
        self.unnamed = []   # lines of unnamed namespaces
        self.faults = []    # (line, what is wrong)
        self.scopes = []    # of each open brace: names of its namespace, () for extern "C", None where it is unnamed
        self.after = self.brackets()
        at = 0
        while at < len(tokens):
            at = max(self.declaration(at), at + 1)

    def text(self, at):
        return self.tokens[at][0] if at < len(self.tokens) else ""

    def fault(self, at, what):
        self.faults.append((self.tokens[min(at, len(self.tokens) - 1)][1], what))

    def full_name(self, names):
        return "::".join([name for scope in self.scopes for name in scope or ()] + names)

    def add(self, names, at, target=""):
        if any(MACRO_NAME.fullmatch(name) for name in names):
            self.fault(at, "a macro as the name of a type: the checks cannot see the name")
        if None not in self.scopes:
            self.found.append((self.full_name(names), *self.tokens[at][1:], target))

    def brackets(self):
        """{position of an opening bracket: position after the one that closes it}"""
        after, waiting = {}, []
        for at, (text, _, _) in enumerate(self.tokens):
            if text in CLOSING:
                waiting.append(at)
            elif text in CLOSERS:
                if not waiting or CLOSING[self.text(waiting[-1])] != text:
                    self.fault(at, f"'{text}' closes nothing")
                    continue
                after[waiting.pop()] = at + 1
        for at in waiting:
            self.fault(at, f"'{self.text(at)}' is not closed")
        return after

    def group(self, at):
        """The position after the bracket that closes the one here."""
        return self.after.get(at, len(self.tokens))

    def until(self, at, *ends):
        """The position of the first of these tokens outside brackets."""
        while at < len(self.tokens) and self.text(at) not in ends:
            if self.text(at) in CLOSERS:
                return at
            at = self.group(at) if self.text(at) in CLOSING else at + 1
        return at

    def angles(self, at):
        """The position after the > that closes the < here."""
        start, depth = at, 0
        while at < len(self.tokens) and self.text(at) not in (";", "{", "}"):
            if self.text(at) in ("(", "["):
                at = self.group(at)
                continue
            depth += (self.text(at) == "<") - (self.text(at) == ">")
            at += 1
            if not depth:
                return at
        self.fault(start, "cannot read these template parameters")
        return at

    def attributes(self, at):
        while (self.text(at), self.text(at + 1)) == ("[", "["):
            at = self.group(at)
        return at

    def declaration(self, at):
        """Reads the declaration that begins here -> the position after it, or after the brace of a namespace."""
        text = self.text(at)
        if text == "}":
            if self.scopes:
                self.scopes.pop()
            return at + 1
        if text == "{":
            return self.group(at)
        if text == "extern" and self.text(at + 1) == '""' and self.text(at + 2) == "{":
            self.scopes.append(())
            return at + 3
        if text == "namespace":
            return self.namespace(at)
        if text == "inline" and self.text(at + 1) == "namespace":
            self.fault(at, "inline namespace: its types have two names; write a namespace")
            return at + 1
        if text in ("import", "module", "export"):
            self.fault(at, f"{text}: no modules; {INCLUDE_FORM}")
        return self.entity(at)

    def namespace(self, at):
        start = at
        at = self.attributes(at + 1)
        names = []
        while re.fullmatch(r"\w+|::", self.text(at)):
            names += [self.text(at)] if self.text(at) != "::" else []
            at = self.attributes(at + 1)
        if self.text(at) == "=":
            return self.until(at, ";") + 1
        if self.text(at) != "{" or "inline" in names:
            self.fault(start, "cannot read this namespace: write namespace a::b {")
            return at
        if any(MACRO_NAME.fullmatch(name) for name in names):
            self.fault(start, "cannot read this namespace: write namespace a::b {")
        if names:
            self.opened.append((self.full_name(names), self.tokens[start][1]))
        else:
            self.unnamed.append(self.tokens[start][1])
        self.scopes.append(tuple(names) if names else None)
        return at + 1

    def entity(self, at):
        """Reads a type, an alias, a function or a variable."""
        while at < len(self.tokens):
            text = self.text(at)
            if text == "template":
                at = self.angles(at + 1) if self.text(at + 1) == "<" else at + 1
            elif text == "typedef":
                self.fault(at, "typedef: write using Name = ...")
                return self.until(at, ";") + 1
            elif text == "using":
                return self.using(at)
            elif text == "operator":
                at = self.until(at + 3 if self.text(at + 1) == "(" else at + 1, "(")
            elif text in CLASS_KEYS:
                defined, at = self.head(at)
                if defined:
                    return self.until(self.group(at), ";") + 1
            elif text in ("(", "["):
                after = self.group(at)
                if MACRO_NAME.fullmatch(self.text(at - 1)) and any(self.text(k) in NOT_IN_MACROS for k in range(at, after)):
                    self.fault(at, "a declaration in the arguments of a macro: the checks cannot see what it defines")
                at = after
            elif text == "{":
                return self.group(at)
            elif text == "=":
                return self.until(at, ";") + 1
            elif text in (";", "}"):
                return at + (text == ";")
            else:
                at += 1
        return at

    def using(self, at):
        end = self.until(at, ";")
        words = [self.text(k) for k in range(at + 1, end)]
        if "=" in words:
            self.add(words[:1], at + 1)
            if "{" in words and set(CLASS_KEYS).intersection(words):
                self.fault(at, "a type in an alias: define it by itself")
        elif "," in words:
            self.fault(at, "several names: write one using for each")
        elif words and words[0] not in ("namespace", "enum") and words[-1][:1].isupper():
            self.add(words[-1:], at, "".join(words))
        return end + 1

    def head(self, at):
        """Reads from struct, class, enum or union -> (whether a type is defined, the position of its brace or what follows)."""
        start = at
        at += 2 if self.text(at) == "enum" and self.text(at + 1) in ("class", "struct") else 1
        names, joined, special = [], False, False  # names: qualified names, of which all but one are macros
        macros = False
        while True:
            text = self.text(at)
            if text == "[":
                at = self.group(at)
            elif text == "::":
                joined, at = True, at + 1
            elif text == "<" and names:
                special, at = True, self.angles(at)
            elif re.fullmatch(r"[A-Za-z_]\w*", text):
                # Before the name alignas(), __attribute__() and their like; after it a function's name follows.
                macros = macros or bool(MACRO_NAME.fullmatch(text))
                if self.text(at + 1) == "(" and (not names or MACRO_NAME.fullmatch(text)):
                    at = self.group(at + 1)
                    continue
                if joined and names:
                    names[-1].append(text)
                else:
                    names.append([text])
                joined, at = False, at + 1
            else:
                break
        if text == ":":
            at = self.until(at, "{", ";")
        if self.text(at) != "{":
            if macros:
                self.fault(start, "a macro beside the name of a type that is not defined here")
            return False, at
        if len(names) > 1 and names[-1] == ["final"]:
            names.pop()
        if len(names) > 1:
            names = [name for name in names if len(name) > 1 or not MACRO_NAME.fullmatch(name[0])]
        if (macros and not names) or len(names) > 1 or (names and not special and not names[0][0][0].isupper()):
            self.fault(start, "cannot read this type: write struct Name {, and define it in its own namespace")
        elif names and not special:
            self.add(names[0], start)
        return True, at
