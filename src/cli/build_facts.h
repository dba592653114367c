// What this program was built from and with, for --version and bug reports.
#ifndef MD_CLI_BUILD_FACTS_H
#define MD_CLI_BUILD_FACTS_H

void md_build_facts_print(void); // on stdout; the first line is "megadecode VERSION"

#endif
