"""Documents as text: those of office programs, e-books, notebooks and PDF files.

reading       asks a separate process, within limits on time and memory
process       that process; it recognises the kind of a file by its content
pdf, word, sheets, slides, open_document, epub, rich_text, notebook    each kind
packages      ZIP archives, in which most kinds come
markdown      tables, and what HTML becomes
"""
