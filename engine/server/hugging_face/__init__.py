"""Hugging Face's own servers: Text Generation Inference (TGI) and Text Embeddings Inference (TEI).

generate    texts that follow a prompt
embed       vectors of texts, and what the loaded model is
"""
